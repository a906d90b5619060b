"""`dgsf fabric`: this machine's devices, as a node of a Ray cluster."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click

from dgsf.config import load_settings
from dgsf.errors import ConfigError


@click.command()
@click.option("--ray-address", help="The cluster to join, HOST:PORT of its head.")
@click.option("--devices", help="Devices of this machine: 'auto', or e.g. 'cpu:2' or 'cpu:1,sim:A100:4'.")
@click.option("--data-dir", help="Folder for logs (default .dgsf).")
@click.option("--node", help="This machine's name in the pool (default: the host name).")
def command(ray_address: str | None, devices: str | None, data_dir: str | None, node: str | None) -> None:
    """Join this machine to a Ray cluster (RAY_AUTH_TOKEN is that cluster's) and stay until Ctrl-C."""
    from dgsf.fabric.devices import offers
    from dgsf.fabric.ray_node import check_token
    from dgsf.supervisor.joining import join

    settings = load_settings(ray_address=ray_address, devices=devices, data_dir=data_dir, node=node)
    if not settings.ray_address:
        raise ConfigError("DGSF_RAY_ADDRESS is not set; give --ray-address HOST:PORT of the cluster's head")
    check_token(settings.ray_address, os.environ, Path.home())
    found = offers(settings.devices, settings.hosts, settings.price_nano_per_us)
    click.echo(f"offering {', '.join(spec.short_name for spec in found)}", err=True)
    asyncio.run(join(settings))
