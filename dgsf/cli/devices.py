"""`dgsf devices`: the devices of the pool."""

from __future__ import annotations

import click

from dgsf.cli.output import client_options, json_option, show_listing
from dgsf.sdk.client import Client

COLUMNS = (
    "id", "name", "node", "kind", "type", "state", "slots", "slots_used", "memory_bytes", "memory_used",
    "speed", "price_nano_per_us", "incarnation", "heartbeat_at",
)  # fmt: skip


@click.command("devices")
@json_option
@client_options
def command(as_json: bool, client: Client) -> None:
    """List the devices of the pool."""
    show_listing(client.devices(), "devices", COLUMNS, as_json=as_json, empty="the pool has no devices")
