"""`dgsf leases`: who holds which slot of which device."""

from __future__ import annotations

import click

from dgsf.cli.output import ATTACHED, client_options, json_option, show_listing
from dgsf.sdk.client import Client

COLUMNS = (
    "device_name", "device", "slot", "holder", "tenant_name", "tenant", "function_name", "function", "version",
    "memory_bytes", "cpu_milli", "epoch", "granted_at", "expires_at", "expired",
)  # fmt: skip


@click.command("leases")
@json_option
@client_options
def command(as_json: bool, client: Client) -> None:
    """Show who holds which slot of which device."""
    show_listing(client.leases(), "leases", COLUMNS, as_json=as_json, empty="no device is leased now", absent=ATTACHED)
