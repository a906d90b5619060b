"""`dgsf functions`: what is deployed."""

from __future__ import annotations

from typing import Any

import click

from dgsf.cli.groups import ListingGroup
from dgsf.cli.output import client_options, json_option, show_fields, show_json, show_listing
from dgsf.sdk.client import Client

COLUMNS = ("name", "version", "created_at", "python", "options", "profile", "doc")


@click.group("functions", cls=ListingGroup)
def command() -> None:
    """List, show and delete deployed functions; without a word, list them."""


@command.command("list")
@json_option
@client_options
def list_(as_json: bool, client: Client) -> None:
    """List all functions of this tenant."""
    found = client.list()
    document = {"functions": found if as_json else [for_people(each) for each in found]}
    show_listing(document, "functions", COLUMNS, as_json=as_json, empty="no functions are deployed")


@command.command()
@click.argument("name")
@json_option
@client_options
def show(name: str, as_json: bool, client: Client) -> None:
    """Show function NAME."""
    found = client.describe(name)
    if as_json:
        show_json(found)
        return
    found = for_people(found)
    signature = found.get("signature")
    if isinstance(signature, list):
        found = {**found, "signature": _signature(signature)}
    show_fields(found)


@command.command()
@click.argument("name")
@client_options
def delete(name: str, client: Client) -> None:
    """Delete function NAME; its past calls and charges stay."""
    client.delete(name)
    click.echo(f"deleted {name}", err=True)


def for_people(function: dict[str, Any]) -> dict[str, Any]:
    """Of its profile, which is a long list of numbers, only whether there is one."""
    options = function.get("options")
    if not isinstance(options, dict) or not options.get("profile"):
        return function
    rest = {name: value for name, value in options.items() if name != "profile"}
    return {**function, "options": rest, "profile": True}


_MARKS = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}


def _signature(parameters: list[Any]) -> str:
    return f"({', '.join(_parameter(item) for item in parameters if isinstance(item, dict))})"


def _parameter(item: dict[str, Any]) -> str:
    kind = str(item.get("kind"))
    text = _MARKS.get(kind, "") + str(item.get("name"))
    if item.get("annotation"):
        text += f": {item['annotation']}"
    return text if item.get("required") or kind in _MARKS else f"{text} = ..."
