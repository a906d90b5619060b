"""A controller process, put together: database, Ray, leadership, and the controller itself."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dgsf.clock import Clock, SystemClock
from dgsf.config import Settings
from dgsf.core.placement.consolidate import MoveRules
from dgsf.errors import DgsfError, StoreUnavailable
from dgsf.fabric.consolidating import Consolidating, consolidate_forever
from dgsf.fabric.controller import Controller
from dgsf.fabric.housekeeping import tidy_forever
from dgsf.fabric.leader import Leader
from dgsf.fabric.ray_cluster import OwnDevices, RayCluster
from dgsf.fabric.reconsidering import reconsider_forever
from dgsf.paths import layout_of
from dgsf.store.calls import CallStore
from dgsf.store.database import Database
from dgsf.store.devices import DeviceStore
from dgsf.store.leader import Leadership
from dgsf.store.leases import LeaseStore
from dgsf.store.registry import Registry
from dgsf.store.sessions import SessionStore

_log = logging.getLogger(__name__)
_STORE_SECONDS = 30.0
_END_SECONDS = 10.0  # for a cluster that should be there; its user waits for the end


async def serve(settings: Settings, holder: str, devices: str) -> None:
    """Stand by or lead until a signal; an error of any kind ends it, and its keeper starts it again.

    `devices`: those of our own node; empty: its Ray node knows them.
    """
    stop = asyncio.Event()
    _hear_signals(stop)
    async with _database(settings) as database:
        working = asyncio.create_task(_lead(settings, holder, devices, database, stop))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)
        _log.info("controller_stopped", extra={"holder": holder})


async def end_devices(settings: Settings) -> None:
    """End every device server of this platform on its cluster, and say so in the database."""
    cluster = _cluster(settings)
    await cluster.connect(_END_SECONDS)
    for actor in await cluster.actors():
        await cluster.kill(actor)
    async with _database(settings) as database:
        devices = DeviceStore(database)
        for row in await devices.list_devices():
            await devices.mark_lost(row.id, row.incarnation)


def _hear_signals(stop: asyncio.Event) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


async def _join(cluster: RayCluster, stop: asyncio.Event) -> None:
    await cluster.connect()
    _hear_signals(stop)  # Ray has put its own handler in place, which prints a stack


async def _lead(settings: Settings, holder: str, devices: str, database: Database, stop: asyncio.Event) -> None:
    clock = SystemClock()
    cluster = _cluster(settings, devices)
    joined = asyncio.create_task(_join(cluster, stop))  # while standing by, so that a take-over is quick
    leader = Leader(Leadership(database), holder, clock)
    tcp = settings.transport == "tcp"
    secret = settings.cluster_secret.encode()

    async def work() -> None:
        controller = Controller(DeviceStore(database), cluster, secret, clock=clock, leads=leader.leads, tcp=tcp)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(tidy_forever(CallStore(database), SessionStore(database)))
            tasks.create_task(reconsider_forever(Registry(database), DeviceStore(database)))
            if settings.consolidate:
                tasks.create_task(consolidate_forever(_consolidating(settings, database, clock)))
            tasks.create_task(controller.run(asyncio.shield(joined)))  # for the next term too

    try:
        await leader.serve(work)
    except* DgsfError as group:
        _log.error("controller_failed", extra={"why": [str(error) for error in group.exceptions]})
        raise
    finally:
        joined.cancel()


def _consolidating(settings: Settings, database: Database, clock: Clock) -> Consolidating:
    rules = MoveRules(per_hour=settings.consolidate)
    return Consolidating(DeviceStore(database), LeaseStore(database), SessionStore(database), clock, rules)


def _cluster(settings: Settings, devices: str = "") -> RayCluster:
    layout = layout_of(settings)
    return RayCluster(
        settings.ray_address,
        namespace=f"dgsf-{layout.mark}",
        secret=settings.cluster_secret.encode(),
        mark=layout.mark,
        own=OwnDevices(devices, settings.price_nano_per_us, settings.hosts) if devices else None,
    )


@asynccontextmanager
async def _database(settings: Settings) -> AsyncIterator[Database]:
    database = await _connect(settings)
    try:
        yield database
    finally:
        await database.close()


async def _connect(settings: Settings) -> Database:
    """A database that is being restarted is waited for."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _STORE_SECONDS
    while True:
        try:
            return await Database.connect(settings.database_url, name="dgsf-controller", min_size=2, max_size=4)
        except StoreUnavailable:
            if loop.time() > deadline:
                raise
            await asyncio.sleep(0.1)
