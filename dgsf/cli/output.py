"""How commands show things: tables for people, aligned text for pipes, JSON for programs.

Times, costs, sizes, thousandths and dates are written in human units by the name of their field (`_us`, `_nano`,
`_bytes`, `_milli`, `_at`); JSON output is always the exact document.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dgsf.sdk.client import Client

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Row = Mapping[str, Any]
F = TypeVar("F", bound=Callable[..., Any])
NO_WORDS: Mapping[str, str] = {}
LABEL_WIDTH = 40  # of the rows of a comparison, on a terminal
ATTACHED = {"function_name": "(attached)"}  # a program of its own, not a function


# --- options that many commands share ---------------------------------------------------------
def client_options(command: F) -> F:
    """Adds --url, --api-key and --data-dir, and hands the command a `client`."""

    @click.option("--url", help="address of the platform  [env: DGSF_URL]")
    @click.option("--api-key", help="API key  [env: DGSF_API_KEY]")
    @click.option("--data-dir", help="data dir of a platform on this machine  [env: DGSF_DATA_DIR]")
    @wraps(command)
    def with_client(*args: Any, url: str | None, api_key: str | None, data_dir: str | None, **kwargs: Any) -> Any:
        with Client(url, api_key, data_dir=data_dir) as client:
            return command(*args, client=client, **kwargs)

    return with_client  # type: ignore[return-value]  # the same command with three options more


@contextmanager
def call_under_way() -> Iterator[None]:
    """Around a call: whoever interrupts it hears what that does to it."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("interrupted: the call is stopped; device time that it has used is charged ('dgsf usage')", err=True)
        raise click.exceptions.Exit(130) from None  # all is said


json_option = click.option("--json", "as_json", is_flag=True, help="print the exact JSON document")


# --- showing ----------------------------------------------------------------------------------
def show_listing(
    document: Any, key: str, columns: Sequence[str], *, as_json: bool, empty: str, absent: Mapping[str, str] = NO_WORDS
) -> None:
    """A document with a list of rows under `key`, and perhaps totals beside it; `absent`: words for missing values."""
    if as_json:
        show_json(document)
        return
    rows = _rows_of(document, key)
    if absent:
        rows = [{**row, **{name: text for name, text in absent.items() if row.get(name) is None}} for row in rows]
    show_rows(rows, columns, empty=empty)
    if isinstance(document, Mapping):
        totals = {name: value for name, value in document.items() if name != key and _is_plain(value)}
        show_fields(totals)


def show_json(document: Any) -> None:
    click.echo(json.dumps(document, indent=2, ensure_ascii=False, default=str))


def show_rows(rows: Sequence[Row], columns: Sequence[str], *, empty: str) -> None:
    """Rows as a table; of the wanted columns, those that some row has."""
    if not rows:
        click.echo(empty)
        return
    chosen = [name for name in columns if any(row.get(name) is not None for row in rows)] or list(rows[0])
    heads = [_head(name) for name in chosen]
    cells = [[human(name, row.get(name)) for name in chosen] for row in rows]
    numeric = [all(isinstance(row.get(name), int | float | None) for row in rows) for name in chosen]
    (_rich_table if sys.stdout.isatty() else _plain_table)(heads, cells, numeric)


def show_side_by_side(label: str, names: Sequence[str], rows: Sequence[Row]) -> None:
    """Things beside each other, a column of figures for each, under their names as they are written.

    On a terminal no figure is cut: those that do not fit beside the others stand in a table of their own below.
    """
    if not sys.stdout.isatty():
        _plain_table([label, *names], [[row[name] for name in (label, *names)] for row in rows], shout=False)
        return
    from rich.console import Console

    console = Console()
    for some in _fitting(console, label, names, rows):
        console.print(_compared(label, some, rows))


def _fitting(console: Console, label: str, names: Sequence[str], rows: Sequence[Row]) -> list[list[str]]:
    """The names, in groups whose tables are as wide as the terminal at most."""
    unlimited = console.options.update(max_width=sys.maxsize)
    groups: list[list[str]] = []
    for name in names:
        wider = [*groups[-1], name] if groups else [name]
        if groups and console.measure(_compared(label, wider, rows), options=unlimited).maximum <= console.width:
            groups[-1].append(name)
        else:
            groups.append([name])
    return groups


def _compared(label: str, names: Sequence[str], rows: Sequence[Row]) -> Table:
    """Only labels are ever broken into lines: one long one would take the room of two columns."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(label, max_width=LABEL_WIDTH)
    for name in names:
        table.add_column(Text(name), no_wrap=True, min_width=max(len(name), *(len(row[name]) for row in rows)))
    for row in rows:
        table.add_row(*(Text(row[name]) for name in (label, *names)))
    return table


def show_fields(fields: Row) -> None:
    """One record, a field per line."""
    shown = {name: human(name, value) for name, value in fields.items() if value is not None}
    width = max((len(name) for name in shown), default=0)
    for name, text in shown.items():
        click.echo(f"{name:<{width}}  {text}")


def show_outcome(device: str, queue_us: int, device_us: int, cost_nano: int) -> None:
    """What a call took, on stderr, so that stdout has the result alone."""
    parts = [f"device {device or '?'}", f"waited {human_us(queue_us)}", f"device time {human_us(device_us)}"]
    click.echo(" | ".join([*parts, f"cost {human_nano(cost_nano)}"]), err=True)


def _rows_of(document: Any, key: str) -> list[Row]:
    if isinstance(document, Mapping):
        document = document.get(key, document.get("items"))
    return [row for row in document or () if isinstance(row, Mapping)]


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _head(name: str) -> str:
    """A column's title: the field without its unit, since the cells have one."""
    if name.endswith("_us") and "_per_" not in name:
        return f"{name.removesuffix('_us')} time".replace("_", " ")
    for unit in ("_nano", "_bytes", "_milli", "_at"):
        name = name.removesuffix(unit)
    return name.replace("_", " ")


def _plain_table(
    heads: list[str], cells: list[list[str]], numeric: Sequence[bool] | None = None, *, shout: bool = True
) -> None:
    lines = [[head.upper() if shout else head for head in heads], *cells]
    widths = [max(len(line[index]) for line in lines) for index in range(len(heads))]
    for line in lines:
        parts = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric or [False] * len(heads), strict=True)
        ]
        click.echo("  ".join(parts).rstrip())


def _rich_table(heads: list[str], cells: list[list[str]], numeric: list[bool]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head, right in zip(heads, numeric, strict=True):
        table.add_column(head, justify="right" if right else "left")
    for line in cells:
        table.add_row(*(Text(text) for text in line))  # Text: a name with [brackets] is no markup
    Console().print(table)


# --- human units ------------------------------------------------------------------------------
def human(name: str, value: Any) -> str:
    """A field's value as people read it, by the field's name."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and name.endswith("_us") and "_per_" not in name:
        return human_us(round(value))
    if isinstance(value, int) and name.endswith("_nano"):
        return human_nano(value)
    if isinstance(value, int) and name.endswith("_milli"):
        return f"{value / 1000:g}"
    if isinstance(value, int) and (name.endswith("_bytes") or name == "memory"):
        return human_bytes(value)
    if name.endswith("_at"):
        return human_time(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def human_us(microseconds: int) -> str:
    for unit, size in (("h", 3_600_000_000), ("min", 60_000_000)):
        if abs(microseconds) >= size:
            return f"{_short(round(microseconds / size, 1))} {unit}"
    for unit, size in (("s", 1_000_000), ("ms", 1_000)):
        if abs(microseconds) >= size:
            return f"{_short(microseconds / size)} {unit}"
    return f"{microseconds} µs"


def human_nano(nano: int) -> str:
    """A cost: whole units as they are, smaller ones in milli, micro and nano."""
    for unit, size in (("", 10**9), (" milli", 10**6), (" micro", 10**3)):
        if abs(nano) >= size:
            return f"{_short(nano / size)}{unit}"
    return f"{nano} nano" if nano else "0"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def human_bytes(size: int) -> str:
    for unit, scale in (("TiB", 1024**4), ("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if abs(size) >= scale:
            return f"{_short(size / scale)} {unit}"
    return f"{size} B"


def human_time(value: Any) -> str:
    """A date of the API (ISO text or Unix seconds) in local time."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else datetime.fromtimestamp(value).astimezone()
    except (ValueError, TypeError, OverflowError, OSError):
        return str(value)
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")
