"""`dgsf functions`: what is deployed."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import click

from dgsf.cli.groups import ListingGroup
from dgsf.cli.output import client_options, human_bytes, json_option, show_fields, show_json, show_listing
from dgsf.sdk.client import Client

TELLING = ("gpu", "attach", "memory", "gpu_memory", "device_alias", "timeout")  # options that the listing has room for
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
    document = {"functions": found if as_json else [for_people(each, TELLING) for each in found]}
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


def for_people(function: dict[str, Any], wanted: Container[str] | None = None) -> dict[str, Any]:
    """Its options in words, all or those that are wanted; of its profile, a list of numbers, whether there is one."""
    options = function.get("options")
    if not isinstance(options, dict):
        return function
    named = [name for name, value in options.items() if name != "profile" and value != ""]
    shown = [name for name in named if wanted is None or name in wanted]
    told = {**function, "options": ", ".join(f"{name} {_option(name, options[name])}" for name in shown) or None}
    return {**told, "profile": True} if options.get("profile") else told


def _option(name: str, value: Any) -> str:
    """A value as one would write it for a person."""
    if name in ("memory", "gpu_memory") and isinstance(value, int):
        return human_bytes(value)
    if isinstance(value, list):
        return " or ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    unit = " s" if name in ("timeout", "idle_seconds") else ""
    return f"{value:g}{unit}" if isinstance(value, int | float) else str(value)


_MARKS = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}


def _signature(parameters: list[Any]) -> str:
    return f"({', '.join(_parameter(item) for item in parameters if isinstance(item, dict))})"


def _parameter(item: dict[str, Any]) -> str:
    kind = str(item.get("kind"))
    text = _MARKS.get(kind, "") + str(item.get("name"))
    if item.get("annotation"):
        text += f": {item['annotation']}"
    return text if item.get("required") or kind in _MARKS else f"{text} = ..."
