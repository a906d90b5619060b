"""`dgsf controller`: the one that keeps the devices running, in a process of its own."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Coroutine
from typing import Any, NoReturn

import click

from dgsf.config import Settings, load_settings
from dgsf.errors import ConfigError, DgsfError, UsageError

_log = logging.getLogger(__name__)


@click.command()
@click.option("--ray-address", help="The Ray cluster whose nodes have the devices.")
@click.option("--devices", default="", help="Devices of this machine; left out: its Ray node says.")
@click.option("--end-devices", is_flag=True, help="End all device servers of this platform, and do nothing else.")
def command(ray_address: str | None, devices: str, end_devices: bool) -> None:
    """Run a controller (set DGSF_DATABASE_URL and DGSF_CLUSTER_SECRET); a second one stands by."""
    from dgsf.telemetry import setup_logging

    settings = load_settings(ray_address=ray_address)
    for name in ("database_url", "cluster_secret", "ray_address"):
        if not getattr(settings, name):
            raise ConfigError(f"DGSF_{name.upper()} is not set; 'dgsf up' runs all parts with one of its own")
    setup_logging(settings, "controller")
    _run_and_leave(_end_devices(settings) if end_devices else _serve(settings, devices))


def _run_and_leave(work: Coroutine[Any, Any, None]) -> NoReturn:
    """Ray's threads may wait for a cluster that is gone, and Python for them; there is nothing left to save."""
    code = 1
    try:
        asyncio.run(work)
        code = 0
    except BaseException as error:
        known = _known(error)
        if known is None:
            _log.exception("controller_ended")
        else:
            code = 2 if isinstance(known, UsageError) else 1
            click.echo(f"error: {known.message}", err=True)
    finally:
        os._exit(code)


def _known(error: BaseException) -> DgsfError | None:
    """The error of ours that it is, or the first in a group of nothing else."""
    if isinstance(error, BaseExceptionGroup):
        found = [_known(each) for each in error.exceptions]
        return found[0] if all(found) else None
    return error if isinstance(error, DgsfError) else None


async def _serve(settings: Settings, devices: str) -> None:
    from dgsf.fabric.serve import serve

    holder = f"{settings.node_name}/{os.getpid()}/{secrets.token_hex(4)}"
    await serve(settings, holder, devices)


async def _end_devices(settings: Settings) -> None:
    from dgsf.fabric.serve import end_devices

    await end_devices(settings)
