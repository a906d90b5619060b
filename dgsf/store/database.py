"""The connection pool, and the one place that tells "the database is away" from other errors.

Owns connections and their session settings; knows no table.  Lost connections, timeouts and a server
that is starting or stopping become `StoreUnavailable`; every other Postgres error passes unchanged,
because it is a mistake of ours that must be seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

import asyncpg

from dgsf.errors import ConfigError, StoreUnavailable

# Class 08: connection lost; 53: no room for more; 57: stopping, starting, killed or timed out;
# 25006: a standby that has not been promoted yet.
_AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.OperatorInterventionError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InternalClientError,  # a dying server's last word came between two statements
    OSError,
    TimeoutError,
)
# asyncpg says these as InterfaceError, which it also uses for wrong calls of its own methods.
_CLOSED_WORDS = ("closed", "closing", "terminated")
# Wrong name or password: only a first connection can meet them, and for it the store is not there.
_REFUSED = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError)
_SESSION = {
    "search_path": "dgsf",
    "synchronous_commit": "on",  # a reply waits for its commit; a server-wide 'off' must not weaken that
    "jit": "off",  # every statement is short: compiling it costs more than running it
    "TimeZone": "UTC",
}


@contextmanager
def guard() -> Iterator[None]:
    """Turns "the database is away" into StoreUnavailable."""
    try:
        yield
    except _AWAY as error:
        raise StoreUnavailable(f"the database does not answer: {_reason(error)}; try again") from error
    except asyncpg.InterfaceError as error:
        if not any(word in str(error) for word in _CLOSED_WORDS):
            raise
        raise StoreUnavailable("the connection to the database was lost; try again") from error


async def _keep_session(_: asyncpg.Connection) -> None:
    """Nothing here changes a session, so the usual reset (one more round trip) is left out."""


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


class Database:
    """A pool of connections to one database, each set up for the store."""

    def __init__(self, url: str, pool: asyncpg.Pool, options: dict[str, Any], timeout: float) -> None:
        self.url = url
        self.pool = pool
        self._options = options
        self._timeout = timeout

    @classmethod
    async def connect(
        cls, url: str, *, name: str = "dgsf", min_size: int = 1, max_size: int = 4, timeout: float = 5.0
    ) -> Database:
        """Connects, or says why not: StoreUnavailable; ConfigError for a URL that is none."""
        options = {
            "timeout": timeout,
            "command_timeout": timeout,
            "max_cached_statement_lifetime": 0,  # the store has a fixed set of statements
            "server_settings": {**_SESSION, "application_name": name},
        }
        with guard(), _refusals():
            pool = await asyncpg.create_pool(
                url,
                min_size=min_size,
                max_size=max_size,
                max_inactive_connection_lifetime=0,
                reset=_keep_session,
                **options,
            )
        return cls(url, pool, options, timeout)

    async def close(self) -> None:
        """Waits a moment for what is under way, then cuts the connections."""
        try:
            await asyncio.wait_for(self.pool.close(), self._timeout)
        except (*_AWAY, asyncpg.InterfaceError):
            self.pool.terminate()

    def guard(self) -> AbstractContextManager[None]:
        return guard()

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection of the pool, guarded."""
        with guard():
            async with self.pool.acquire(timeout=self._timeout) as connection:
                try:
                    yield connection
                except asyncpg.InternalClientError:
                    connection.terminate()  # it no longer knows where it is; the pool makes another
                    raise

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection inside a transaction, guarded."""
        async with self.acquire() as connection, connection.transaction():
            yield connection

    async def open_connection(self, **changes: Any) -> asyncpg.Connection:
        """A connection of its own, outside the pool, with asyncpg options changed; who asks for it closes it."""
        with guard(), _refusals():
            return await asyncpg.connect(self.url, **{**self._options, **changes})


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except _REFUSED as error:
        raise StoreUnavailable(f"the database refuses the connection: {_reason(error)}") from error
    except (asyncpg.ClientConfigurationError, ValueError) as error:
        raise ConfigError(f"the database URL is wrong: {_reason(error)}") from error
