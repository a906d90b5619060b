"""`dgsf sessions`: programs and functions that are attached to remote devices.

The table is for a terminal: the figures that people act on, ids cut to what still tells them apart (`move` takes that),
and what went wrong below it in whole sentences.  `--json` has everything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise

import click

from dgsf.cli.groups import ListingGroup
from dgsf.cli.output import ATTACHED, Row, client_options, human_us, json_option, show_json, show_rows
from dgsf.errors import Conflict, PlatformError
from dgsf.sdk.client import Client

COLUMNS = ("id", "state", "device", "tenant", "function", "age", "used", "cost_nano")
ID_LENGTH = 8  # at least; ids begin with the time, so those of one minute need more
MOVE_SECONDS = 120.0  # finding room and copying the state are given less by the proxy
LOOK_SECONDS = 0.2
NO_DEVICE = {"fresh": "(none yet)", "begun": "(waits)"}  # "fresh": a function that has not used its device


@click.group("sessions", cls=ListingGroup)
def command() -> None:
    """List sessions with remote devices, and move them; without a word, list them."""


@command.command("list")
@click.option("--ended", is_flag=True, help="also those that have ended")
@json_option
@client_options
def list_(ended: bool, as_json: bool, client: Client) -> None:
    """List open sessions, newest first; --json shows all that is known of them."""
    found = client.sessions(ended=ended)
    if as_json:
        show_json(found)
        return
    rows = found.get("sessions") or []
    show_rows(for_people(rows, datetime.now(UTC)), COLUMNS, empty="no session is open")
    if told := remarks(rows):
        click.echo("\n" + "\n".join(told))


@command.command()
@click.argument("session_id")
@click.option("--to", default="", help="the device to move to (default: any other)")
@click.option("--wait", is_flag=True, help="wait until it has moved, or say why it did not")
@click.option(
    "--deadline", default=MOVE_SECONDS, show_default=True, type=click.FloatRange(min=0.0, min_open=True),
    help="with --wait: seconds to wait at most",
)  # fmt: skip
@client_options
def move(session_id: str, to: str, wait: bool, deadline: float, client: Client) -> None:
    """Move session SESSION_ID (or enough of it) to another device while it runs."""
    if not wait:
        client.move_session(session_id, to)
        click.echo("asked; 'dgsf sessions' shows the device, or why it stays (--wait waits for that)", err=True)
        return
    before = client.session(session_id)
    session, here = str(before["id"]), before.get("device_name")
    client.move_session(session, to)
    there = wait_for_move(lambda: client.session(session), here, deadline)
    click.echo(f"moved from {here or 'no device'} to {there}", err=True)


# --- a move that is waited for ------------------------------------------------------------------
def wait_for_move(
    look: Callable[[], Row],
    here: str | None,
    seconds: float,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """The device that the session has moved to; an error that says why it has not, or not in time."""
    until = now() + seconds
    while True:
        row = look()
        if (there := moved_to(row, here)) is not None:
            return there
        if now() >= until:
            raise PlatformError(f"not moved after {seconds:g} s: {_standing(row, here)}")
        sleep(min(LOOK_SECONDS, max(0.0, until - now())))


def moved_to(row: Row, here: str | None) -> str | None:
    """Where a session that was asked to move has gone; None while that is open, an error if it stays."""
    if row.get("ended_at") is not None:
        raise Conflict("the session has ended; it did not move")
    if row.get("move_to") is not None:
        return None
    if row.get("move_error"):
        raise Conflict(f"it stays on {row.get('device_name')}: {row['move_error']}")
    device = row.get("device_name")
    return device if device != here else None  # the answer is written a moment before the device


def _standing(row: Row, here: str | None) -> str:
    asked = "the wish stands; " if row.get("move_to") is not None else ""
    return f"the session is {row.get('state')} on {here}; {asked}'dgsf sessions' shows what becomes of it"


# --- the table ----------------------------------------------------------------------------------
def for_people(rows: Sequence[Row], now: datetime) -> list[Row]:
    """What fits on a line of a terminal; the tenant only if there are several."""
    length = _telling_length([str(row["id"]) for row in rows])
    several = len({row.get("tenant_name") for row in rows}) > 1
    return [
        {
            **row,
            "id": str(row["id"])[:length],
            "device": row.get("device_name") or NO_DEVICE.get(str(row.get("state"))),
            "tenant": row.get("tenant_name") if several else None,
            "function": row.get("function_name") or ATTACHED["function_name"],
            "age": _age(row, now),
            "used": human_us(int(row.get("device_us") or 0)),
        }
        for row in rows
    ]


def remarks(rows: Sequence[Row]) -> list[str]:
    """A line for each session that is asked to move, would not, or ended badly."""
    length = _telling_length([str(row["id"]) for row in rows])
    told = []
    for row in rows:
        name = str(row["id"])[:length]
        if row.get("error_code"):
            told.append(f"{name} ended with {row['error_code']}")
        elif row.get("ended_at") is not None:
            continue  # what it was asked is of no interest any more
        elif row.get("move_to") is not None:
            told.append(f"{name} is asked to move to {row['move_to'] or 'any other device'}")
        elif row.get("move_error"):
            told.append(f"{name} did not move: {row['move_error']}")
    return told


def _telling_length(ids: Sequence[str]) -> int:
    """So many characters tell all of them apart."""
    return max([ID_LENGTH, *(_first_difference(*pair) + 1 for pair in pairwise(sorted(ids)))])


def _first_difference(one: str, other: str) -> int:
    return next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))


def _age(row: Row, now: datetime) -> str | None:
    """How long it has lasted, or did."""
    began = row.get("started_at")
    if not isinstance(began, str):
        return None
    ended = row.get("ended_at")
    until = datetime.fromisoformat(ended) if isinstance(ended, str) else now
    return human_us(max(0, round((until - datetime.fromisoformat(began)).total_seconds())) * 1_000_000)
