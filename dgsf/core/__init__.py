"""Pure decisions: no I/O, no clock of their own, no asyncio; production, tests and simulator share them."""
