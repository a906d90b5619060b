"""After the load, the books: every answer that a client has seen must have its charge, and all must balance."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import Any

from dgsf.errors import DgsfError
from dgsf.store.database import Database
from dgsf.store.ledger import Ledger
from dgsf.store.rows import LedgerCheck

_DURABILITY = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_sync_method")


@dataclass(frozen=True, slots=True)
class Books:
    """The ledger beside what clients were told."""

    check: LedgerCheck
    answered: int

    @property
    def right(self) -> bool:
        """More charges than answers are fine: a call may end after its client has stopped counting."""
        return self.check.clean and self.check.charges >= self.answered

    def as_fact(self) -> dict[str, Any]:
        return {"right": self.right, "answered": self.answered, **asdict(self.check)}


def check_books(database_url: str, answered: int) -> dict[str, Any]:
    """The ledger's figures for the report; DgsfError if they are wrong, for then no speed is worth anything."""
    books = asyncio.run(_check(database_url, answered))
    if not books.right:
        raise DgsfError(f"the ledger is wrong after the load: {books.as_fact()}")
    return books.as_fact()


def durability(database_url: str) -> dict[str, str]:
    """The settings that a commit's price depends on, as the running server has them for a session of ours."""
    return asyncio.run(_durability(database_url))


async def _check(url: str, answered: int) -> Books:
    database = await Database.connect(url, name="loadtests")
    try:
        return Books(await Ledger(database).check(), answered)
    finally:
        await database.close()


async def _durability(url: str) -> dict[str, str]:
    database = await Database.connect(url, name="loadtests")
    try:
        async with database.acquire() as connection:
            return {name: await connection.fetchval(f"SHOW {name}") for name in _DURABILITY}
    finally:
        await database.close()
