"""Leadership by a lease in Postgres: one holder per name, an epoch that only grows.

Time is Postgres' own.  It decides nothing about what a leader does with it.
"""

from __future__ import annotations

from dgsf.store.database import Database
from dgsf.store.queries import sql


class Leadership:
    """Leases on names. A holder must be unique to its process."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def acquire(self, name: str, holder: str, ttl_s: float) -> int | None:
        """The epoch of this new leadership, or None while another leads."""
        async with self._database.acquire() as connection:
            epoch: int | None = await connection.fetchval(sql("acquire_leadership"), name, holder, ttl_s)
        return epoch

    async def renew(self, name: str, holder: str, epoch: int, ttl_s: float) -> bool:
        """False if another has led since, or it was released."""
        async with self._database.acquire() as connection:
            return await connection.fetchval(sql("renew_leadership"), name, holder, epoch, ttl_s) is not None

    async def release(self, name: str, holder: str, epoch: int) -> bool:
        """Lets another lead at once."""
        async with self._database.acquire() as connection:
            return await connection.fetchval(sql("release_leadership"), name, holder, epoch) is not None
