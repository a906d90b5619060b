"""Listens to a Postgres channel on a connection of its own, until told to stop.

A notification can be missed while the connection is away, so the callback also runs after every
connection made: the listener then reads everything anew.  It never carries data.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import asyncpg

from dgsf.errors import StoreUnavailable
from dgsf.store.database import Database, guard

_log = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.2
_MOST_PAUSE_SECONDS = 2.0
_PROBE_SECONDS = 5.0  # a peer that vanished without a word is found by this


Stop = Callable[[], Awaitable[None]]


async def listen(database: Database, channel: str, callback: Callable[[], None]) -> Stop:
    """Starts listening and returns what ends it; a database that is away is waited for."""
    task = asyncio.create_task(_listen_for_ever(database, channel, callback), name=f"listen {channel}")

    async def stop() -> None:
        task.cancel()
        await asyncio.wait([task])

    return stop


async def _listen_for_ever(database: Database, channel: str, callback: Callable[[], None]) -> None:
    pause = _PAUSE_SECONDS
    while True:
        try:
            connection = await database.open_connection()
            pause = _PAUSE_SECONDS
            await _listen_on(connection, channel, callback)
        except StoreUnavailable as error:
            _log.warning("store_listener_lost", extra={"channel": channel, "reason": str(error)})
        await asyncio.sleep(pause)
        pause = min(2 * pause, _MOST_PAUSE_SECONDS)


async def _listen_on(connection: asyncpg.Connection, channel: str, callback: Callable[[], None]) -> None:
    """Returns or raises StoreUnavailable when the connection ends."""
    lost = asyncio.Event()
    connection.add_termination_listener(lambda _: lost.set())
    try:
        with guard():
            await connection.add_listener(channel, lambda *_: callback())
            callback()
            while not await _waited(lost, _PROBE_SECONDS):
                await connection.execute("SELECT")
    finally:
        connection.terminate()


async def _waited(event: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True
