"""`dgsf invoke NAME [JSON]`: calls a deployed function as any HTTP program would."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from dgsf.cli.output import call_under_way, client_options, json_option, show_json, show_outcome
from dgsf.errors import UsageError
from dgsf.sdk.client import Client
from dgsf.sdk.codec import BYTES, JSON
from dgsf.sdk.outcome import Outcome


@click.command("invoke")
@click.argument("name")
@click.argument("arguments", required=False, metavar="[JSON]")
@click.option("--file", "-f", help="send this file (-: standard input) as the body")
@click.option("--raw", is_flag=True, help="the body is raw bytes: the function's one argument")
@json_option
@client_options
def command(name: str, arguments: str | None, file: str | None, raw: bool, as_json: bool, client: Client) -> None:
    """Call function NAME; JSON is an object of keyword arguments or an array of positional ones."""
    body = _body(arguments, file)
    if not raw:
        _check_json(body)
    with call_under_way():
        outcome = client.post(name, body, BYTES if raw else JSON, "*/*" if raw else JSON)
    _show(outcome, as_json=as_json)


def _body(arguments: str | None, file: str | None) -> bytes:
    if arguments is not None and file is not None:
        raise UsageError("give the arguments as JSON or by --file, not both")
    if file is None:
        return (arguments if arguments is not None else "{}").encode()
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error


def _check_json(body: bytes) -> None:
    try:
        found = json.loads(body)
    except ValueError as error:
        raise UsageError(f"the arguments are not JSON: {error}; for other bytes use --raw") from error
    if not isinstance(found, dict | list):
        raise UsageError("the arguments must be a JSON object (by name) or array (in order)")


def _show(outcome: Outcome[bytes], *, as_json: bool) -> None:
    if as_json:
        numbers = {"queue_us": outcome.queue_us, "device_us": outcome.device_us, "cost_nano": outcome.cost_nano}
        result = _readable(outcome.value)
        show_json({"result": result, "call_id": outcome.call_id, "device": outcome.device, **numbers})
        return
    sys.stdout.buffer.write(outcome.value)
    if _is_text(outcome.value) and not outcome.value.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
    show_outcome(outcome.device, outcome.queue_us, outcome.device_us, outcome.cost_nano)


def _is_text(value: bytes) -> bool:
    """Whether a line end may be added: bytes that are no text come out as they are."""
    try:
        return value.decode().isprintable()
    except UnicodeDecodeError:
        return False


def _readable(value: bytes) -> object:
    try:
        return json.loads(value)
    except ValueError:
        raise UsageError("the result is no JSON; leave out --json to get its bytes") from None
