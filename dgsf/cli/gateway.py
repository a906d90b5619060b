"""`dgsf gateway`: the HTTP edge in a process of its own, with the proxy inside it or apart.

The one place where gateway and proxy meet: both only know the port between them.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import click

from dgsf.config import Settings, load_settings

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from dgsf.store.catalogue import Catalogue
    from dgsf.store.database import Database
    from dgsf.wire.ports import CallPort
    from dgsf.wire.shared import SharedArea


class _Way(NamedTuple):
    """The way of calls to workers, and what tells that it has ended."""

    port: CallPort
    ready: Callable[[], bool]
    collectors: Sequence[Collector] = ()


@click.command()
@click.option("--host", help="Address to listen on (default 127.0.0.1).")
@click.option("--port", type=int, help="Port to listen on (default 8700; 0: any free one).")
def command(host: str | None, port: int | None) -> None:
    """Run a gateway alone (set DGSF_DATABASE_URL and DGSF_CLUSTER_SECRET)."""
    import uvloop

    from dgsf.telemetry import setup_logging
    from dgsf.turns import ask_for_short_turns

    settings = load_settings(host=host, port=port)
    setup_logging(settings, "gateway")
    ask_for_short_turns()
    uvloop.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    from dgsf.cli.parts import open_store, settle_memory
    from dgsf.paths import layout_of
    from dgsf.wire.shared import SharedArea
    from gateway.context import Context
    from gateway.server import Gateway

    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    area = SharedArea(layout_of(settings).shared_name)
    area.make()
    async with open_store(settings, "dgsf-gateway") as (database, catalogue, secret):
        way_of = _proxy_inside if settings.proxy_inside else _proxies_apart
        async with way_of(settings, database, catalogue, secret, area, told) as way:
            context = Context.over(database, settings, way.port, area, catalogue, way.collectors, way.ready)
            gateway = Gateway(context)
            try:
                port = await gateway.start(settings.host, settings.port, share=settings.gateways > 1)
                click.echo(f"gateway http://{settings.host}:{port}")
                settle_memory()
                await told.wait()
            finally:
                await gateway.stop()


@asynccontextmanager
async def _proxy_inside(
    settings: Settings, database: Database, catalogue: Catalogue, secret: bytes, area: SharedArea, told: asyncio.Event
) -> AsyncIterator[_Way]:
    """The proxy in this process: one hop less. Functions over the fabric still go to the proxies apart."""
    from dgsf.store.proxies import ProxyStore
    from dgsf.wire.link import host_id
    from gateway.split import SplitPort
    from proxy.build import Presence, make_proxy
    from proxy.metrics import ProxyCollector

    name = f"{settings.node_name}/gateway"
    row = await ProxyStore(database).register(name, settings.node_name, host_id(), None, None, None)
    proxy = make_proxy(settings, database, catalogue, secret, area, row, sessions=False)
    presence = Presence(database, proxy, row)
    await proxy.start()
    presence.start()
    replaced = asyncio.create_task(_tell(presence.replaced, told))
    try:
        async with _proxies_apart(settings, database, catalogue, secret, area, told) as apart:
            port = SplitPort(proxy, apart.port, catalogue)
            yield _Way(port, lambda: proxy.recorder.available, [ProxyCollector(proxy)])
    finally:
        replaced.cancel()
        await proxy.stop()
        await presence.stop()


@asynccontextmanager
async def _proxies_apart(
    settings: Settings, database: Database, catalogue: Catalogue, secret: bytes, area: SharedArea, told: asyncio.Event
) -> AsyncIterator[_Way]:
    """Every proxy that the store knows."""
    from dgsf.store.calls import CallStore
    from dgsf.store.proxies import ProxyStore
    from gateway.fleet import Fleet

    fleet = Fleet(settings, secret, area, ProxyStore(database), CallStore(database), catalogue)
    await fleet.start()
    try:
        yield _Way(fleet, lambda: fleet.ready)
    finally:
        await fleet.stop()


async def _tell(replaced: asyncio.Event, told: asyncio.Event) -> None:
    """Another process has taken this proxy's place: end."""
    await replaced.wait()
    told.set()
