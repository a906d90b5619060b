"""A real Postgres for the whole test session, and a fresh, migrated database in it for each test."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import asyncpg
import pytest
from databases import quick_folder, url_of

from dgsf.store.database import Database
from dgsf.store.embedded import EmbeddedPostgres
from dgsf.store.migrate import migrate

TEMPLATE = "migrated"


@pytest.fixture(scope="session")
def database_url() -> Iterator[str]:
    """URL of a server that lives as long as the session; its own database is not migrated."""
    home = quick_folder()
    server = EmbeddedPostgres(home / "data", run_dir=home / "run")
    try:
        yield asyncio.run(_start(server))
    finally:
        asyncio.run(server.stop())
        shutil.rmtree(home)


async def _start(server: EmbeddedPostgres) -> str:
    url = await server.start()
    await _administer(url, f"CREATE DATABASE {TEMPLATE}")
    database = await Database.connect(url_of(url, TEMPLATE))
    await migrate(database)
    await database.close()
    return url


async def _administer(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture
async def fresh_url(database_url: str) -> AsyncIterator[str]:
    """URL of a migrated database of this test's own."""
    name = f"t_{uuid4().hex}"
    await _administer(database_url, f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY file_copy")
    yield url_of(database_url, name)
    await _administer(database_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def database(fresh_url: str) -> AsyncIterator[Database]:
    """A pool on a migrated database of this test's own."""
    connected = await Database.connect(fresh_url, max_size=16, timeout=30.0)
    yield connected
    await connected.close()
