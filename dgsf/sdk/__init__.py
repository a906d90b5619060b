"""The SDK: what a user's program and a worker share. It never imports ray, torch or asyncpg."""
