"""`dgsf devices`: the devices of the pool."""

from __future__ import annotations

import click

from dgsf.cli.output import client_options, json_option, show_listing, show_rows
from dgsf.sdk.client import Client

COLUMNS = (
    "id", "name", "node", "kind", "type", "state", "slots", "slots_used", "memory_bytes", "memory_used",
    "speed", "price_nano_per_us", "incarnation", "heartbeat_at",
)  # fmt: skip
HOST_COLUMNS = ("id", "name", "node", "state", "slots", "memory_bytes", "incarnation", "heartbeat_at")


@click.command("devices")
@json_option
@client_options
def command(as_json: bool, client: Client) -> None:
    """List the devices of the pool, and the function hosts below them."""
    found = client.devices()
    show_listing(found, "devices", COLUMNS, as_json=as_json, empty="the pool has no devices")
    if not as_json and found.get("hosts"):
        click.echo("\nfunction hosts (no device; they run the bodies of attach='fabric' functions)")
        show_rows(found["hosts"], HOST_COLUMNS, empty="")
