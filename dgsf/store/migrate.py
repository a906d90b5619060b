"""Brings a database to the shape that this code needs.

Migrations are `NNNN_name.before.sql` (additive: code of the version before still runs with it) and
`NNNN_name.after.sql` (run once all code is new).  Each runs once, in a transaction of its own, under an
advisory lock, and is recorded with its checksum.  A recorded file that was changed since stops the
start, and so does an `after` of a later version: this code does not know what it took away.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from importlib.resources.abc import Traversable

import asyncpg

from dgsf.errors import StartError
from dgsf.store.database import Database, guard

_log = logging.getLogger(__name__)
_FILE = re.compile(r"^(\d{4})_([a-z0-9_]+)\.(before|after)\.sql$")
_LOCK = 0x64677366  # "dgsf"
_OLDEST_SERVER = 15

_PREPARE = """
CREATE SCHEMA IF NOT EXISTS dgsf;
CREATE TABLE IF NOT EXISTS dgsf.migrations (
    number     integer NOT NULL,
    phase      text NOT NULL CHECK (phase IN ('before', 'after')),
    name       text NOT NULL,
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (number, phase)
);
"""


class Phase(StrEnum):
    before = "before"
    after = "after"


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    phase: Phase
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def title(self) -> str:
        return f"{self.number:04}_{self.name}.{self.phase}"

    @property
    def order(self) -> tuple[int, bool]:
        return self.number, self.phase is Phase.after


@dataclass(frozen=True, slots=True)
class Applied:
    """A migration as the database remembers it."""

    number: int
    phase: str
    name: str
    checksum: str


def load_migrations(folder: Traversable | None = None) -> list[Migration]:
    """The package's migrations (or a folder's), in order; StartError for a file that does not belong."""
    folder = folder or files("dgsf.store").joinpath("sql", "migrations")
    found: dict[tuple[int, bool], Migration] = {}
    for entry in folder.iterdir():
        migration = _read(entry)
        other = found.setdefault(migration.order, migration)
        if other is not migration:
            raise StartError(f"two migrations have one number: {other.title} and {migration.title}")
    return [found[order] for order in sorted(found)]


def _read(entry: Traversable) -> Migration:
    match = _FILE.match(entry.name)
    if match is None:
        raise StartError(f"{entry.name} is not a migration; name it like 0007_what_it_does.before.sql")
    return Migration(int(match[1]), match[2], Phase(match[3]), entry.read_text("utf-8"))


def pending(known: Sequence[Migration], applied: Iterable[Applied], phases: Iterable[Phase]) -> list[Migration]:
    """What is still to run, in order; StartError if code and database do not fit each other."""
    by_key = {(migration.number, str(migration.phase)): migration for migration in known}
    done = set()
    for row in applied:
        done.add((row.number, row.phase))
        _check(row, by_key.get((row.number, row.phase)))
    wanted = set(phases)
    return [m for m in known if m.phase in wanted and (m.number, str(m.phase)) not in done]


def _check(row: Applied, migration: Migration | None) -> None:
    title = f"{row.number:04}_{row.name}.{row.phase}"
    if migration is None and row.phase == Phase.after:
        raise StartError(
            f"the database is newer than this code: it has {title}, which this version of dgsf does not know; "
            "start the newer version, or restore the database from before it"
        )
    if migration is None:
        _log.warning("store_migration_unknown", extra={"migration": title})
    elif migration.checksum != row.checksum:
        raise StartError(
            f"migration {title} was changed after it ran (recorded {row.checksum[:12]}, "
            f"now {migration.checksum[:12]}): undo the change and write a new migration instead"
        )


async def migrate(
    database: Database,
    phases: Iterable[Phase] = (Phase.before, Phase.after),
    known: Sequence[Migration] | None = None,
) -> list[str]:
    """Runs what is pending and tells its titles. Many processes may call it at once."""
    known = load_migrations() if known is None else known
    connection = await database.open_connection(command_timeout=None)
    try:
        with guard():
            return await _migrate_on(connection, known, tuple(phases))
    finally:
        connection.terminate()


async def _migrate_on(connection: asyncpg.Connection, known: Sequence[Migration], phases: Sequence[Phase]) -> list[str]:
    server = connection.get_server_version()
    if server.major < _OLDEST_SERVER:
        raise StartError(f"PostgreSQL {server.major} is too old: dgsf needs {_OLDEST_SERVER} or later")
    await connection.execute("SELECT pg_advisory_lock($1)", _LOCK)  # ends with the connection
    await connection.execute(_PREPARE)
    records = await connection.fetch("SELECT number, phase, name, checksum FROM dgsf.migrations")
    todo = pending(known, [Applied(**record) for record in records], phases)
    for migration in todo:
        await _apply(connection, migration)
    return [migration.title for migration in todo]


async def _apply(connection: asyncpg.Connection, migration: Migration) -> None:
    try:
        async with connection.transaction():
            await connection.execute(migration.text)
            await connection.execute(
                "INSERT INTO dgsf.migrations (number, phase, name, checksum) VALUES ($1, $2, $3, $4)",
                *(migration.number, migration.phase.value, migration.name, migration.checksum),
            )
    except asyncpg.PostgresSyntaxError as error:
        raise StartError(f"migration {migration.title} failed: {error}") from error
    _log.info("store_migrated", extra={"migration": migration.title})
