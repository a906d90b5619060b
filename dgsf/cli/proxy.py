"""`dgsf proxy`: a proxy in a process of its own."""

from __future__ import annotations

import asyncio
import signal

import click

from dgsf.config import Settings, load_settings

KEPT_BYTES = 64 * 1024 * 1024  # of free memory, for what passes through


@click.command()
def command() -> None:
    """Run a proxy apart from the gateways (set DGSF_DATABASE_URL and DGSF_CLUSTER_SECRET)."""
    import uvloop

    from dgsf.telemetry import setup_logging
    from dgsf.turns import ask_for_short_turns

    settings = load_settings()
    setup_logging(settings, "proxy")
    ask_for_short_turns()
    uvloop.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    from dgsf.cli.parts import open_store, settle_memory
    from dgsf.clock import SystemClock
    from dgsf.heap import keep_freed_memory
    from dgsf.paths import layout_of
    from dgsf.store.proxies import ProxyStore
    from dgsf.wire.link import host_id
    from dgsf.wire.shared import SharedArea
    from proxy.build import Presence, make_proxy
    from proxy.server import ProxyServer
    from proxy.sessions.door import SessionDoor

    layout = layout_of(settings)
    async with open_store(settings, "dgsf-proxy") as (database, catalogue, secret):
        area = SharedArea(layout.shared_name)
        area.make()
        unix_path = layout.run_dir / "proxy.sock"
        server = ProxyServer(settings, secret, area, unix_path)
        tcp_host = settings.host
        port = server.listen(tcp_host)
        door = SessionDoor(secret, SystemClock(), layout.run_dir / "sessions.sock")
        doors = door.listen(settings.session_host or settings.host, settings.session_port)
        name = f"{settings.node_name}/proxy"
        row = await ProxyStore(database).register(
            name, settings.node_name, host_id(), str(unix_path), tcp_host, port, doors
        )
        proxy = make_proxy(settings, database, catalogue, secret, area, row)
        presence = Presence(database, proxy, row)
        await proxy.start()
        presence.start()
        server.start(proxy)
        assert proxy.sessions is not None
        door.start(proxy.sessions)
        settle_memory()
        keep_freed_memory(KEPT_BYTES)
        await _until_told(presence.replaced)
        await door.stop()
        await proxy.stop()  # first: its answers still leave by the server's links
        await presence.stop()
        await server.stop()


async def _until_told(replaced: asyncio.Event) -> None:
    """Until SIGINT or SIGTERM, or until a later process has taken this proxy's place."""
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, replaced.set)
    await replaced.wait()
