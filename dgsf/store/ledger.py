"""Reads the money: what was used by whom, and whether the books are right.

Never writes; charges are written with the calls that they belong to.
"""

from __future__ import annotations

from datetime import datetime

from dgsf.store.database import Database
from dgsf.store.queries import sql
from dgsf.store.rows import LedgerCheck, UsageRow

_USAGE = sql("usage")
_CHECK = sql("check_ledger")
_CHECK_SECONDS = 120.0  # it reads every charge there is


class Ledger:
    """The bill and its proof."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def usage(
        self, tenant_id: int | None = None, since: datetime | None = None, until: datetime | None = None
    ) -> list[UsageRow]:
        """Per function, refunds taken off; of all tenants if none is given; since <= time < until."""
        async with self._database.acquire() as connection:
            records = await connection.fetch(_USAGE, tenant_id, since, until)
        return [UsageRow(**record) for record in records]

    async def check(self) -> LedgerCheck:
        """Counts everything that should not be; reads the whole ledger."""
        async with self._database.acquire() as connection:
            record = await connection.fetchrow(_CHECK, timeout=_CHECK_SECONDS)
        return LedgerCheck(**record)
