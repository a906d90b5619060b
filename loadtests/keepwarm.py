"""Keep-warm rules on the GenAI trace: cold starts beside a fixed idle time of 60 s, at no more resident GPU-seconds.

`python -m loadtests.keepwarm [--slots 4 --load-s 30]` prints a table per assumption.  Everything is counted over the
last two thirds of the trace: the first third is for learning, and rules with a parameter are fitted on that part alone.
Ours learns as it goes, and its budget is what the fixed idle time has spent so far, replayed beside it.  It was
designed while looking at this same trace, the counted part included: the figures are no proof for other traces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click

from dgsf.cli.output import json_option, show_json, show_rows
from dgsf.config import load_settings
from dgsf.core.keepwarm import Budget
from dgsf.sim.traces import read_trace
from dgsf.sim.warmpool import Count, Keeper, WarmCall, WarmPool, replay
from dgsf.sim.warmrules import FixedIdle, GreedyDual, Histogram, LeastRecent, Ours

FIXED_S = 60.0
LEARN = 1 / 3  # of the calls
HISTOGRAM_RANGES_S = (30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0)
ASSUMPTIONS = ((1, 30.0), (2, 30.0), (4, 5.0), (4, 15.0), (4, 30.0), (4, 60.0), (8, 30.0))
Make = Callable[[], Keeper]


@dataclass(frozen=True, slots=True)
class Setting:
    """The calls, and what is assumed of devices and loads."""

    calls: Sequence[WarmCall]
    slots: int
    load_s: float

    @property
    def count_from(self) -> float:
        return self.calls[int(len(self.calls) * LEARN)][0]

    def count(self, keeper: Keeper, *, waits: bool = False) -> Count:
        return replay(WarmPool(self.slots, self.load_s, keeper, waits=waits, count_from=self.count_from), self.calls)

    def learning(self) -> Setting:
        """The first third alone, counted from its begin."""
        return Setting(self.calls[: int(len(self.calls) * LEARN)], self.slots, self.load_s)


def ours_beside_fixed(setting: Setting, *, waits: bool) -> tuple[Count, Count]:
    """Our rule with the spending of a fixed idle time as its budget, both in one pass: (ours, fixed)."""
    budget = Budget()
    count_from = setting.count_from
    fixed = WarmPool(setting.slots, setting.load_s, FixedIdle(FIXED_S), waits=False, count_from=count_from)
    keeper = Ours(setting.slots, setting.load_s, budget)
    ours = WarmPool(setting.slots, setting.load_s, keeper, waits=waits, count_from=count_from)
    for at, function, run_s in setting.calls:
        fixed.call(at, function, run_s)
        budget.allowed = fixed.resident_s
        ours.call(at, function, run_s)
    return ours.count, fixed.count


def fitted(setting: Setting, makes: Sequence[Make]) -> Keeper:
    """The rule with the fewest cold starts in the first third within the fixed rule's time, or the least over it."""
    learning = setting.learning()
    allowed = replay(
        WarmPool(setting.slots, setting.load_s, FixedIdle(FIXED_S), waits=False), learning.calls
    ).resident_s
    tried = []
    for number, make in enumerate(makes):
        count = replay(WarmPool(setting.slots, setting.load_s, make(), waits=False), learning.calls)
        over = count.resident_s > allowed
        tried.append((over, count.resident_s if over else count.cold, number))
    return makes[min(tried)[2]]()


def compare(setting: Setting) -> list[dict[str, object]]:
    """One row per rule; ratios to the fixed idle time."""
    waiting, fixed = ours_beside_fixed(setting, waits=True)
    alone, _ = ours_beside_fixed(setting, waits=False)
    ranges: list[Make] = [lambda range_s=range_s: Histogram(range_s) for range_s in HISTOGRAM_RANGES_S]  # type: ignore[misc]
    rules: list[tuple[str, Count]] = [
        ("fixed 60 s", fixed),
        ("fixed 60 s, calls wait if sooner", setting.count(FixedIdle(FIXED_S), waits=True)),
        ("histogram, 4 h (Shahrad)", setting.count(Histogram())),
        ("histogram, range fitted", setting.count(fitted(setting, ranges))),
        ("LRU, one device always", setting.count(LeastRecent(1))),
        ("greedy-dual, one device always", setting.count(GreedyDual(1))),
        ("ours", alone),
        ("ours, calls wait if sooner", waiting),
    ]
    return [_row(name, count, fixed) for name, count in rules]


def _row(name: str, count: Count, fixed: Count) -> dict[str, object]:
    return {
        "rule": name,
        "cold": count.cold,
        "of fixed": round(count.cold / fixed.cold, 3),
        "resident h": round(count.resident_s / 3600, 1),
        "of fixed time": round(count.resident_s / fixed.resident_s, 3),
        "loaded ahead": count.fetched,
        "waited": count.waited,
        "mean wait s": round(count.waited_s / count.waited, 1) if count.waited else 0.0,
    }


@click.command()
@click.option("--slots", type=click.IntRange(1), help="instances that one device holds")
@click.option("--load-s", type=click.FloatRange(0, min_open=True), help="seconds to load a model")
@json_option
def command(slots: int | None, load_s: float | None, as_json: bool) -> None:
    """Compare keep-warm rules under one assumption, or under all of the usual ones."""
    trace = read_trace("genai", load_settings().traces)
    names = [trace.functions[index].name for index in trace.function]
    calls = list(zip(trace.arrival_s, names, trace.run_s, strict=True))
    chosen = [(slots or 4, load_s or 30.0)] if slots or load_s else list(ASSUMPTIONS)
    tables = {pair: compare(Setting(calls, *pair)) for pair in chosen}
    if as_json:
        show_json([{"slots": pair[0], "load_s": pair[1], "rules": rows} for pair, rows in tables.items()])
        return
    for (held, load), rows in tables.items():
        click.secho(f"\n{held} slots per device, {load:g} s to load", bold=True)
        show_rows(rows, tuple(rows[0]), empty="")


if __name__ == "__main__":
    command()
