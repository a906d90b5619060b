"""The connection of the group commit: one of its own, always at hand.

Taking a connection from a pool and giving it back costs more than the flush of one call, and there is never
more than one flush at a time.  A connection that breaks is given up, and the next flush opens another.
A probe waits for a flush that is under way, and the other way round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import asyncpg

from dgsf.store.calls import finish_on
from dgsf.store.database import Database, guard
from dgsf.store.rows import FinishedCall, Outcome


class Flusher:
    """Commits the ends of calls on one connection, one statement at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: asyncpg.Connection | None = None
        self._turn = asyncio.Lock()

    async def flush(self, rows: Sequence[FinishedCall]) -> list[Outcome]:
        """As CallStore.finish."""
        async with self._turn:
            connection = await self._opened()
            try:
                with guard():
                    return await finish_on(connection, rows)
            except BaseException:
                self._give_up()  # whatever happened, its state is not worth finding out
                raise

    async def probe(self) -> None:
        """StoreUnavailable unless the database answers."""
        async with self._turn:
            connection = await self._opened()
            try:
                with guard():
                    await connection.execute("SELECT")
            except BaseException:
                self._give_up()
                raise

    async def close(self) -> None:
        if self._connection is not None and not self._connection.is_closed():
            with guard():
                await self._connection.close(timeout=2)

    async def _opened(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._database.open_connection()
        return self._connection

    def _give_up(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
