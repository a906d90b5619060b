"""`dgsf keys`: the API keys of a tenant."""

from __future__ import annotations

import click

from dgsf.cli.groups import ListingGroup
from dgsf.cli.output import client_options, json_option, show_json, show_listing
from dgsf.sdk.client import Client

COLUMNS = ("key_id", "name", "role", "tenant_name", "created_at", "revoked_at")
ROLES = ("operator", "deploy", "invoke")


@click.group("keys", cls=ListingGroup)
def command() -> None:
    """List, create and revoke API keys; without a word, list them."""


@command.command("list")
@json_option
@client_options
def list_(as_json: bool, client: Client) -> None:
    """List the keys of this tenant, without their secrets."""
    show_listing(client.keys(), "keys", COLUMNS, as_json=as_json, empty="there are no keys")


@command.command()
@click.option("--role", type=click.Choice(ROLES), required=True, help="what the key may do")
@click.option("--name", default="", help="what the key is for")
@json_option
@client_options
def create(role: str, name: str, as_json: bool, client: Client) -> None:
    """Create a key; its text is shown this once."""
    found = client.create_key(role, name)
    if as_json:
        show_json(found)
        return
    click.echo(found.get("key", ""))
    click.echo(f"key {found.get('key_id')} with role {role}; keep it, it is not shown again", err=True)


@command.command()
@click.argument("key_id")
@click.option("--force", is_flag=True, help="also the key in use; without another one you are locked out")
@client_options
def revoke(key_id: str, force: bool, client: Client) -> None:
    """Revoke the key KEY_ID; it stops working at once."""
    client.revoke_key(key_id, force=force)
    click.echo(f"revoked {key_id}", err=True)
