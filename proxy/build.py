"""Puts a proxy together from settings and a database: the one place that knows all its parts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

from dgsf.clock import SystemClock
from dgsf.config import Settings
from dgsf.core.placement import KeptPoolChooser
from dgsf.errors import StoreUnavailable
from dgsf.speedtable import read_speeds
from dgsf.store.catalogue import Catalogue
from dgsf.store.database import Database
from dgsf.store.devices import DeviceStore
from dgsf.store.leases import LeaseStore
from dgsf.store.notices import Stop, listen
from dgsf.store.proxies import ProxyStore
from dgsf.store.rows import ProxyRow, RoundTrip
from dgsf.store.sessions import SESSIONS_CHANNEL
from dgsf.wire.link import host_id
from dgsf.wire.shared import SharedArea
from proxy.directory import Directory
from proxy.leases import LeaseKeeper
from proxy.local import LocalProxy
from proxy.placing import Placing
from proxy.recorder import Recorder
from proxy.seating import Seating
from proxy.sessions.hub import SessionHub
from proxy.starter import Starter
from proxy.worker_link import Limits

log = logging.getLogger(__name__)
SLOTS_CHANNEL = "dgsf_slots"
BEAT_SECONDS = 1.0


def make_proxy(
    settings: Settings,
    database: Database,
    catalogue: Catalogue,
    secret: bytes,
    area: SharedArea,
    row: ProxyRow,
    *,
    sessions: bool = True,
) -> LocalProxy:
    """A proxy that is registered as `row`; not started yet. Inside a gateway it has no sessions."""
    clock = SystemClock()
    lease_store = LeaseStore(database)
    tcp = settings.transport == "tcp"
    directory = Directory(DeviceStore(database), lease_store, secret, host_id(), tcp, row.name)
    leases = LeaseKeeper(lease_store, row.name, row.incarnation, settings.lease_seconds, clock)
    limits = Limits(settings.inline_bytes, settings.max_result_bytes)
    seating = Seating(directory, leases, secret, Placing(directory, _chooser(settings), clock))
    starter = Starter(directory, leases, seating, catalogue.code, secret, area, limits, clock, settings.start_seconds)
    proxy = LocalProxy(
        settings, catalogue, directory, leases, starter, Recorder(database, row.number), row.number, clock
    )
    if sessions:
        hub = SessionHub(database, directory, leases, seating, row, clock, proxy.room.make_for_session)
        proxy.use_sessions(hub)
    return proxy


def _chooser(settings: Settings) -> KeptPoolChooser:
    """The policy of the settings, with the table of speeds that they name."""
    speeds = read_speeds(Path(settings.speeds), "DGSF_SPEEDS") if settings.speeds else None
    return KeptPoolChooser(settings.placement, speeds=speeds)


class Presence:
    """Keeps a proxy known to the others: its heartbeat, and its ear for what others ask of it."""

    def __init__(self, database: Database, proxy: LocalProxy, row: ProxyRow) -> None:
        self._database = database
        self._store = ProxyStore(database)
        self._devices = DeviceStore(database)
        self._proxy = proxy
        self._row = row
        self._tasks: list[asyncio.Task[None]] = []
        self._deaf: list[Stop] = []  # end the listening
        self.replaced = asyncio.Event()

    def start(self) -> None:
        self._proxy.room.ask_others = self._ask_others
        self._tasks = [asyncio.create_task(work) for work in (self._beat(), self._measure(), self._hear())]

    async def stop(self) -> None:
        for stop in self._deaf:
            await stop()
        running = set(self._tasks)
        while running:  # a cancellation that meets the very end of a database call's time-out is lost in Python 3.11
            for task in running:
                task.cancel()
            _, running = await asyncio.wait(running, timeout=BEAT_SECONDS)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _beat(self) -> None:
        while True:
            with contextlib.suppress(StoreUnavailable):
                if not await self._store.beat(self._row.number, self._row.incarnation):
                    log.error("proxy_replaced", extra={"proxy": self._row.name})
                    self.replaced.set()
                await self._tell_distances()
            await asyncio.sleep(BEAT_SECONDS)

    async def _measure(self) -> None:
        """Apart from the heartbeat, which nothing may stop."""
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            self._proxy.measure_again()

    async def _tell_distances(self) -> None:
        """Round trips that are new or have clearly changed, for whoever decides by them."""
        distances = self._proxy.distances
        news = distances.news()
        if news:
            rows = {row.id: row for row in await self._devices.list_devices()}
            sessions = self._proxy.sessions is not None
            found = [
                (device, life, RoundTrip(round(us, 1), rows[device].host_id == self._row.host_id, sessions))
                for device, (life, us) in news.items()
                if device in rows
            ]
            await self._devices.write_round_trips(self._row.number, found)
            distances.told(news)

    async def _hear(self) -> None:
        """Proxies that are short of slots, and operators who want a session moved."""
        self._deaf.append(await listen(self._database, SLOTS_CHANNEL, self._proxy.yield_slot))
        if self._proxy.sessions is not None:
            self._deaf.append(await listen(self._database, SESSIONS_CHANNEL, self._proxy.sessions.wake))

    async def _ask_others(self) -> None:
        async with self._database.acquire() as connection:
            await connection.execute("SELECT pg_notify($1, '')", SLOTS_CHANNEL)
