"""`dgsf sessions`: programs and functions that are attached to remote devices."""

from __future__ import annotations

import click

from dgsf.cli.groups import ListingGroup
from dgsf.cli.output import ATTACHED, client_options, json_option, show_listing
from dgsf.sdk.client import Client

COLUMNS = (
    "id", "state", "device_name", "tenant_name", "function_name", "proxy_name", "generation", "device_us", "cost_nano",
    "memory_bytes", "bytes_up", "bytes_down", "started_at", "ended_at", "error_code", "move_to", "move_error",
)  # fmt: skip


@click.group("sessions", cls=ListingGroup)
def command() -> None:
    """List sessions with remote devices, and move them; without a word, list them."""


@command.command("list")
@click.option("--ended", is_flag=True, help="also those that have ended")
@json_option
@client_options
def list_(ended: bool, as_json: bool, client: Client) -> None:
    """List open sessions, newest first."""
    found = client.sessions(ended=ended)
    show_listing(found, "sessions", COLUMNS, as_json=as_json, empty="no session is open", absent=ATTACHED)


@command.command()
@click.argument("session_id")
@click.option("--to", default="", help="the device to move to (default: any other)")
@client_options
def move(session_id: str, to: str, client: Client) -> None:
    """Move session SESSION_ID (or enough of it) to another device while it runs."""
    client.move_session(session_id, to)
    click.echo("asked; 'dgsf sessions' shows the device, or why it stays", err=True)
