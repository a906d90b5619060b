"""What `dgsf sim` shows: the table and what stands below it, JSON, files, and a bar while it runs."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dgsf.cli.output import show_json, show_side_by_side
from dgsf.cli.simoptions import DRAWN
from dgsf.cli.simplan import ratios
from dgsf.core.counting import counted

if TYPE_CHECKING:
    from dgsf.cli.simoptions import Options
    from dgsf.cli.simplan import Plan
    from dgsf.sim.experiment import Progress
    from dgsf.sim.pools import PoolSpec
    from dgsf.sim.result import Result

REASONS = 3  # of each policy, at most


@dataclass(frozen=True, slots=True)
class Report:
    """All that a run came to."""

    title: str
    results: Sequence[Result]
    assumed: dict[str, str]
    notes: Sequence[str]  # lines below the table
    plan: Plan | None = None


def write_files(report: Report, plot: Path | None, html: Path | None) -> None:
    if plot is not None:
        from dgsf.sim.plots import save_plot

        save_plot(plot, report.results, report.title)
    if html is not None:
        from dgsf.sim.html import save_html

        save_html(html, report.results, report.title, report.assumed, report.notes)


def show(report: Report, *, as_json: bool) -> None:
    from dgsf.sim.report import rows

    results = report.results
    if as_json:
        found = [dataclasses.asdict(result) for result in results]
        show_json({"results": found, **_planned(report), "assumed": report.assumed})
        return
    click.secho(report.title, bold=True)
    show_side_by_side("figure", [result.policy for result in results], rows(results))
    for note in report.notes:
        click.echo(note)


def _planned(report: Report) -> dict[str, object]:
    """The plan as JSON has it; nothing without one."""
    plan = report.plan
    if plan is None:
        return {}
    beside = {"planned_gpus_at_once": plan.most_gpus, "over_planned": ratios(plan, report.results)}
    return {"planned_gpu_hours": plan.gpu_hours, **beside}


# --- what stands below the table --------------------------------------------------------------
def refusals(results: Sequence[Result]) -> list[str]:
    """Why calls found no place, the most frequent reasons; what holds for several policies is said once."""
    told: dict[str, list[str]] = {}
    for result in results:
        for line in _reasons(result):
            told.setdefault(line, []).append(result.policy)
    everybody = len(results)
    return [line if len(names) == everybody else f"{', '.join(names)}: {line}" for line, names in told.items()]


def _count(calls: float) -> str:
    """Means over several seeds need not be whole."""
    return f"{calls:,.0f}" if calls >= 1000 or calls == int(calls) else f"{calls:,.1f}"


def _reasons(result: Result) -> list[str]:
    found = list(result.why_refused.items())
    lines = [f"{_count(calls)} found no place: {reason}" for reason, calls in found[:REASONS]]
    rest = found[REASONS:]
    if rest:
        others = _count(sum(calls for _, calls in rest))
        lines.append(f"{others} found no place for {counted(len(rest), 'other reason')} (--json)")
    return lines


def sharing_notes(options: Options, shared: Result, exclusive: Result) -> list[str]:
    """What sharing gained, and what the comparison stands on: without that, sharing would cost nothing."""
    if exclusive.wait_mean_s == 0:
        faster = "--rate" if options.arrivals in DRAWN else "--speedup"
        more = f"raise {faster}, or take a smaller --pool"
        gained = f"nobody waited with exclusive devices: there is nothing to gain; {more}"
    else:
        ratio = shared.wait_mean_s / exclusive.wait_mean_s
        gained = f"queueing delay with sharing ÷ exclusive devices: {ratio:.3f} (the DGSF paper, on other calls: 0.47)"
    return [
        gained,
        f"assumed of calls that share a device: each needs it for itself for {options.duty:g} of its run (--duty), and "
        f"is slowed by {options.interference:g} by each call beside it (--interference)",
    ]


def tell_assumed_types(pool: PoolSpec) -> None:
    """Types of a file that nothing is known of, on stderr: they change speeds and costs."""
    from dgsf.sim.devicetypes import STAND_IN, TYPES

    if pool.assumed:
        stand_in = f"a {STAND_IN} ({TYPES[STAND_IN]})"
        click.echo(
            f"{', '.join(pool.assumed)}: no figures are known of these types, each counts as {stand_in}", err=True
        )


@contextmanager
def reading(path: Path) -> Iterator[Callable[[int], None] | None]:
    """How much of a file is read, on a terminal; nothing otherwise."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status(f"reading {path.name}") as status:
        yield lambda rows: status.update(f"reading {path.name}, {rows:,} rows")


@contextmanager
def progress_bar(runs: int) -> Iterator[Progress | None]:
    """A bar on a terminal; nothing otherwise."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("simulating", total=None)
        seen: list[tuple[str, int]] = []

        def tell(policy: str, seed: int, done: int, calls: int) -> None:
            if not seen or seen[-1] != (policy, seed):
                seen.append((policy, seed))
            bar.update(task, description=f"{policy}, seed {seed} ({len(seen)}/{runs})", completed=done, total=calls)

        yield tell
