"""What a benchmark has found: rows with a goal, the facts around them, as a table and as JSON.

Pure but for printing: it measures nothing.  A missed goal is a result like any other; only the reader
decides what it means.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dgsf.errors import UsageError


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on a figure."""

    value: float
    at_least: bool

    def met_by(self, figure: float) -> bool:
        return figure >= self.value if self.at_least else figure <= self.value

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {_number(self.value)}"


def at_least(value: float) -> Goal:
    return Goal(value, True)


def at_most(value: float) -> Goal:
    return Goal(value, False)


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison. `figure` is what the goal bounds: a ratio, or a value by itself."""

    what: str
    ours: float
    peer: float | None
    figure: float
    goal: Goal
    unit: str = ""
    low: float | None = None  # the figure's least and greatest over single rounds
    high: float | None = None

    @property
    def met(self) -> bool:
        return self.goal.met_by(self.figure)


def compare(what: str, ours: Sequence[float], peer: Sequence[float], goal: Goal, unit: str = "") -> Row:
    """The ratio of the medians; beside it the range of the ratios of neighbouring rounds."""
    if not ours or len(ours) != len(peer):
        raise UsageError(f"{what}: {len(ours)} rounds of ours and {len(peer)} of the peer cannot be compared")
    ratios = [mine / other for mine, other in zip(ours, peer, strict=True)]
    middle_ours, middle_peer = median(ours), median(peer)
    return Row(what, middle_ours, middle_peer, middle_ours / middle_peer, goal, unit, min(ratios), max(ratios))


def single(what: str, value: float, goal: Goal, unit: str = "") -> Row:
    """A figure of ours alone."""
    return Row(what, value, None, value, goal, unit)


@dataclass(slots=True)
class Section:
    """One measurement: its rows, what else is worth knowing, and every single figure."""

    name: str
    rows: list[Row] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    raw: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Report:
    """A whole run."""

    settings: dict[str, Any]
    sections: list[Section] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)  # measurements that could not be made

    def as_json(self) -> str:
        document = {
            "settings": self.settings,
            "sections": [_section_document(section) for section in self.sections],
            "failures": self.failures,
        }
        return json.dumps(document, indent=1, default=str) + "\n"

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.as_json())


def _section_document(section: Section) -> dict[str, Any]:
    rows = [_row_document(row) for row in section.rows]
    return {"name": section.name, "rows": rows, "facts": section.facts, "raw": section.raw}


def _row_document(row: Row) -> dict[str, Any]:
    return {
        "what": row.what,
        "unit": row.unit,
        "ours": row.ours,
        "peer": row.peer,
        "figure": row.figure,
        "low": row.low,
        "high": row.high,
        "goal": str(row.goal),
        "met": row.met,
    }


# --- for people -------------------------------------------------------------------------------
def show(report: Report, console: Console) -> None:
    for name, value in report.settings.items():
        console.print(f"[bold]{name}[/]: {escape(str(value))}", highlight=False)
    for section in report.sections:
        if section.rows:
            console.print(_table(section))
        for name, value in section.facts.items():
            console.print(f"  {name}: {escape(str(value))}", highlight=False)
    for name, reason in report.failures.items():
        console.print(f"[red]{name} could not be measured[/]: {escape(reason)}", highlight=False)


def _table(section: Section) -> Table:
    table = Table(title=section.name, title_justify="left", title_style="bold")
    table.add_column("what", overflow="fold")
    for name in ("ours", "peer", "ratio", "range", "goal", "met"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in section.rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: Row) -> list[str]:
    spread = "" if row.low is None or row.high is None else f"{_number(row.low)}-{_number(row.high)}"
    return [
        row.what,
        _with_unit(row.ours, row.unit),
        "" if row.peer is None else _with_unit(row.peer, row.unit),
        "" if row.peer is None else _number(row.figure),
        spread,
        str(row.goal),
        "[green]yes[/]" if row.met else "[red]no[/]",
    ]


def _with_unit(value: float, unit: str) -> str:
    return f"{_number(value)} {unit}".rstrip()


def _number(value: float) -> str:
    """Three significant digits; whole thousands with commas."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
