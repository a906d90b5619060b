"""`dgsf devices`: the devices of the pool, taking one out of use for a while, and forgetting one that is lost."""

from __future__ import annotations

from collections.abc import Sequence

import click

from dgsf.cli.groups import ListingGroup
from dgsf.cli.output import Row, client_options, json_option, show_json, show_rows
from dgsf.sdk.client import Client

COLUMNS = (
    "id", "name", "node", "kind", "type", "state", "slots", "slots_used", "memory_bytes", "memory_used", "node_cpus",
    "speed", "price_nano_per_us", "incarnation", "heartbeat_at", "round_trip_us",
)  # fmt: skip
HOST_COLUMNS = (
    "id", "name", "node", "state", "slots", "memory_bytes", "node_cpus", "incarnation", "heartbeat_at", "round_trip_us",
)  # fmt: skip

LOST_COLUMNS = ("id", "name", "node", "kind", "type", "heartbeat_at")


@click.group("devices", cls=ListingGroup)
def command() -> None:
    """List the devices of the pool, drain, restore and forget them; without a word, list them."""


@command.command()
@click.argument("name")
@client_options
def drain(name: str, client: Client) -> None:
    """Take device NAME (or enough of its name) out of use: nothing new, sessions move away, workers finish."""
    before = client.devices()  # its answer does not say what was so already
    found = client.drain_device(name)["name"]
    click.echo(drain_words(found, before.get("devices") or [], before.get("hosts") or []), err=True)


@command.command()
@click.argument("name")
@client_options
def restore(name: str, client: Client) -> None:
    """Put device NAME back to use."""
    found = client.restore_device(name)["name"]
    click.echo(f"{found} takes work again", err=True)


@command.command()
@click.argument("name")
@client_options
def forget(name: str, client: Client) -> None:
    """Take lost device NAME out of the listing; past bills keep it, and it is back if it starts again."""
    found = client.forget_device(name)["name"]
    click.echo(f"{found} is forgotten; it is listed again if it starts again", err=True)


@command.command("list")
@json_option
@client_options
def list_(as_json: bool, client: Client) -> None:
    """List the devices of the pool, below them the function hosts, and last those that are lost."""
    found = client.devices()
    if as_json:
        show_json(found)
        return
    devices, lost = _apart(found.get("devices") or [])
    hosts, lost_hosts = _apart(found.get("hosts") or [])
    show_rows(devices, COLUMNS, empty="no device of the pool is there")
    if hosts:
        click.echo("\nfunction hosts (no device; they run the bodies of attach='fabric' functions)")
        show_rows(hosts, HOST_COLUMNS, empty="")
    if lost or lost_hosts:
        click.echo("\nlost (of an earlier start, or not heard of any more; back as soon as they start again;")
        click.echo("'dgsf devices forget NAME' takes one out of this list)")
        show_rows([*lost, *lost_hosts], LOST_COLUMNS, empty="")


def drain_words(name: str, devices: Sequence[Row], hosts: Sequence[Row]) -> str:
    """That it drains, since when, where to look for what is left, and whether any of its sort still takes work."""
    is_host = any(row.get("name") == name for row in hosts)
    others = {row.get("name"): row.get("state") for row in (hosts if is_host else devices)}
    already = " already" if others.pop(name, None) == "draining" else ""
    told = f"{name} drains{already}; 'dgsf leases' and 'dgsf sessions' show what is left on it"
    if "healthy" in others.values():
        return told
    sort = "function host" if is_host else "device"
    return f"{told}\nno {sort} takes work now; 'dgsf devices restore {name}' ends the drain"


def _apart(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Those that are there, and those that are lost."""
    return [row for row in rows if row.get("state") != "lost"], [row for row in rows if row.get("state") == "lost"]
