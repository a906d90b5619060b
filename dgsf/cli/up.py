"""`dgsf up`: the whole platform on this machine, until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import click

from dgsf.config import Settings, load_settings
from dgsf.core.devices import AUTO, DeviceSpec, parse_hosts
from dgsf.errors import StartError


@click.command()
@click.option("--host", help="Address that the gateway listens on (default 127.0.0.1).")
@click.option("--port", type=int, help="Port of the gateway (default 8700; 0: any free one).")
@click.option("--data-dir", help="Folder for database, keys and logs (default .dgsf).")
@click.option("--devices", help="Devices of this machine: 'auto', or e.g. 'cpu:2' or 'cpu:1,sim:A100:4'.")
@click.option("--database-url", help="A PostgreSQL server to use instead of the embedded one.")
@click.option("--ray-address", help="A Ray cluster to use instead of a local one.")
@click.option("--ray-host", help="Address of this machine at which its own Ray listens (default 127.0.0.1).")
@click.option("--ray-port", type=int, help="Port of its own Ray, for other machines to join (default: any free one).")
@click.option("--gateways", type=int, help="Gateway processes that share the port (default 1).")
@click.option("--proxy", type=click.Choice(["auto", "inside", "apart"]), help="Where the proxy lives.")
@click.option("--node", help="This machine's name in the pool (default: the host name).")
def command(**flags: Any) -> None:
    """Start everything on this machine and stay; prints 'ready URL' when calls are answered."""
    from dgsf.remoting.guest.modes import parse_modes

    settings = load_settings(**flags)
    parse_modes(settings.remoting)  # a mistake there is told before anything starts
    start(settings)


def start(settings: Settings) -> None:
    from dgsf.paths import layout_of, private_folder
    from dgsf.supervisor import leftovers
    from dgsf.supervisor.bootstrap import check_database
    from dgsf.supervisor.platform import Platform
    from dgsf.supervisor.ports import check_free, check_ray_place, free_port
    from dgsf.supervisor.progress import Progress
    from dgsf.telemetry import setup_logging

    offered = _offered(settings)
    layout = layout_of(settings)
    for folder in (layout.data_dir, layout.logs):
        private_folder(folder)
    setup_logging(settings, "up", layout.logs / "up.log")
    with leftovers.lock(layout.lock_file), Progress() as progress:
        old = leftovers.end(leftovers.recorded(layout.processes_file))
        count = leftovers.end_marked(layout.mark)
        if count or old:
            progress.say(f"ended {count} processes that an earlier run had left behind")
        check_free(settings.host, settings.port)
        if settings.database_url:
            asyncio.run(check_database(settings.database_url))
        if not settings.ray_address:
            check_ray_place(settings.ray_host, settings.ray_port)
        private_folder(layout.run_dir)
        whole = settings.with_changes(
            port=settings.port or free_port(settings.host),
            data_dir=layout.data_dir,
            mark=layout.mark,
            devices=_absolute(settings.devices),
        )
        try:
            asyncio.run(Platform(whole, layout, progress, offered).run())
        except* StartError as group:
            raise _first(group) from None


def _first(group: BaseExceptionGroup[StartError]) -> StartError:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, StartError)
    return found


def _offered(settings: Settings) -> list[DeviceSpec]:
    """The devices of this machine; ones that it does not have cannot be waited for, so that is told at once."""
    from dgsf.fabric.devices import offers
    from dgsf.fabric.ray_node import check_token

    parse_hosts(settings.hosts)
    if settings.ray_address:
        check_token(settings.ray_address, os.environ, Path.home())
    if settings.ray_address and settings.devices == AUTO:
        return []  # the Ray node on this machine, if there is one, says which
    return offers(settings.devices, settings.hosts, settings.price_nano_per_us)


def _absolute(devices: str) -> str:
    """Other processes have other working folders."""
    return os.path.abspath(os.path.expanduser(devices)) if devices.endswith(".toml") else devices
