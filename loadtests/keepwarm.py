"""Keep-warm rules on the GenAI trace: cold starts beside a fixed idle time of 60 s, at no more resident GPU-seconds.

`python -m loadtests.keepwarm` prints ours and the best possible for many assumptions (half an hour of processor time
and more), `--slots 4 --load-s 30` all rules for one.  Counted are the whole trace and, apart, the calls after its
first 30 %: rules with a parameter are fitted on those.  Ours' constants were chosen with the whole trace in view, the
same for all assumptions; `--shuffled 6` puts blocks of six hours into another order, on which none was chosen.  Ours
learns as it goes; its budget is what the fixed idle time has spent so far, replayed beside it.  If calls may wait for a
busy instance, they may in both.  `--shared-weights` is for devices on which the calls of a function share its weights,
for all rules alike; up to `--runs` calls then run on a device at once.  `--trace azure` takes the first calls of
another trace instead: one function that many call at once.  `--devices` makes the pool so small that it is full at
times: under all rules an idle instance then makes way, and calls that find none wait for room; `--trace bursts` draws
calls for that, twenty functions in bursts of ten times the mean rate.  "Best possible" knows all calls and chooses
which instances to keep, but loads none ahead and waits for nothing (`dgsf.sim.warmbound`).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace

import click

from dgsf.cli.output import json_option, show_json, show_rows
from dgsf.config import load_settings
from dgsf.core.keepwarm import Budget
from dgsf.sim.synthetic import Synthetic, draw
from dgsf.sim.traces import read_trace
from dgsf.sim.warmbound import fewest_cold
from dgsf.sim.warmpool import Count, Keeper, Shape, WarmCall, WarmPool, replay
from dgsf.sim.warmrules import FixedIdle, GreedyDual, Histogram, LeastRecent, Ours
from loadtests.progress import doing

FIXED_S = 60.0
LEARN = 0.3  # of the calls
HISTOGRAM_RANGES_S = (30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0)
SLOTS = (1, 2, 4, 8, 12)
RUNS = 4  # of the eight that a device holds
LOADS_S = (0.0, 2.0, 15.0, 30.0)
FIRST_CALLS = {"genai": None, "azure": 4_000, "bursts": None}  # of a trace; None: all
BURSTS = Synthetic(calls=6_000, rate_per_s=5.0, burst=10.0, burst_s=20.0)  # 100 run at once in a burst
Make = Callable[[], Keeper]
Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Setting:
    """The calls, and what is assumed of devices and loads."""

    calls: Sequence[WarmCall]
    shape: Shape
    load_s: float
    devices: int | None = None  # None: as many as are wanted

    @property
    def learned(self) -> int:
        return int(len(self.calls) * LEARN)

    @property
    def rest_from(self) -> float:
        return self.calls[self.learned][0]

    def pool(self, keeper: Keeper, *, waits: bool = False) -> WarmPool:
        return WarmPool(self.shape, self.load_s, keeper, waits=waits, devices=self.devices)

    def learning(self) -> Setting:
        """The first part alone."""
        return replace(self, calls=self.calls[: self.learned])


@dataclass(frozen=True, slots=True)
class Tally:
    """What a rule did in the whole trace, and after its first part."""

    whole: Count
    rest: Count


def tally(setting: Setting, pools: Sequence[WarmPool], between: Callable[[], None] = lambda: None) -> list[Tally]:
    """All calls through all pools side by side; `between` comes when the first pool has had a call."""
    before: list[Count] = []
    for number, (at, function, run_s) in enumerate(setting.calls):
        if number == setting.learned:
            for pool in pools:
                pool.advance(at)
            before = [replace(pool.count) for pool in pools]
        for place, pool in enumerate(pools):
            pool.call(at, function, run_s)
            if place == 0:
                between()
    return [Tally(pool.count, _difference(pool.count, was)) for pool, was in zip(pools, before, strict=True)]


def _difference(after: Count, before: Count) -> Count:
    return Count(*(new - old for new, old in zip(astuple(after), astuple(before), strict=True)))


def ours_beside_fixed(setting: Setting, *, waits: bool, fixed_waits: bool | None = None) -> tuple[Tally, Tally]:
    """Our rule with the spending of a fixed idle time as its budget, both in one pass: (ours, fixed)."""
    budget = Budget()
    fixed = setting.pool(FixedIdle(FIXED_S), waits=waits if fixed_waits is None else fixed_waits)
    ours = setting.pool(Ours(setting.shape, setting.load_s, budget, waits=waits), waits=waits)

    def allow() -> None:
        budget.allowed = fixed.resident_s

    theirs, mine = tally(setting, [fixed, ours], allow)
    return mine, theirs


def fitted(setting: Setting, makes: Sequence[Make]) -> Keeper:
    """The rule with the fewest cold starts in the first part within the fixed rule's time, or the least over it."""
    learning = setting.learning()
    allowed = replay(learning.pool(FixedIdle(FIXED_S)), learning.calls).resident_s
    tried = []
    for number, make in enumerate(makes):
        count = replay(learning.pool(make()), learning.calls)
        over = count.resident_s > allowed
        tried.append((over, count.resident_s if over else count.cold, number))
    return makes[min(tried)[2]]()


def best_possible(setting: Setting, fixed: Tally) -> Tally:
    """Within the time of the fixed rule, whose calls do not wait."""
    whole, rest = fixed.whole, fixed.rest
    slots, shared = setting.shape.slots, setting.shape.shared
    cold = fewest_cold(setting.calls, slots, whole.resident_s, shared=shared)
    cold_rest = fewest_cold(setting.calls, slots, rest.resident_s, setting.rest_from, shared=shared)
    return Tally(
        Count(calls=whole.calls, cold=cold, resident_s=whole.resident_s),
        Count(calls=rest.calls, cold=cold_rest, resident_s=rest.resident_s),
    )


def compare(setting: Setting) -> list[Row]:
    """One row per rule; ratios to the fixed idle time under which calls wait or do not, as they do in that row."""
    alone, fixed = ours_beside_fixed(setting, waits=False)
    waiting, fixed_waiting = ours_beside_fixed(setting, waits=True)
    uneven, _ = ours_beside_fixed(setting, waits=True, fixed_waits=False)
    ranges: list[Make] = [lambda range_s=range_s: Histogram(range_s) for range_s in HISTOGRAM_RANGES_S]  # type: ignore[misc]
    simple: list[tuple[str, Keeper]] = [
        ("histogram, 4 h (Shahrad)", Histogram()),
        ("histogram, range fitted", fitted(setting, ranges)),
        ("LRU, one device always", LeastRecent(1)),
        ("greedy-dual, one device always", GreedyDual(1)),
    ]
    others = tally(setting, [setting.pool(keeper) for _, keeper in simple])
    return [
        _row("fixed 60 s", fixed, fixed),
        *(_row(name, seen, fixed) for (name, _), seen in zip(simple, others, strict=True)),
        _row("ours", alone, fixed),
        _row("best possible, none loaded ahead", best_possible(setting, fixed), fixed),
        _row("fixed 60 s, calls wait if sooner", fixed_waiting, fixed_waiting),
        _row("ours, calls wait if sooner", waiting, fixed_waiting),
        _row("ours, calls wait; fixed: they do not", uneven, fixed),
    ]


def _row(name: str, seen: Tally, fixed: Tally) -> Row:
    count = seen.whole
    return {
        "rule": name,
        "cold": count.cold,
        "of fixed": _ratio(count.cold, fixed.whole.cold),
        "after 30 %": _ratio(seen.rest.cold, fixed.rest.cold),
        "resident h": round(count.resident_s / 3600, 1),
        "time of fixed": _ratio(count.resident_s, fixed.whole.resident_s),
        "time after 30 %": _ratio(seen.rest.resident_s, fixed.rest.resident_s),
        "loaded ahead": count.fetched,
        "waited": count.waited,
        "mean wait s": round(count.waited_s / count.waited, 1) if count.waited else 0.0,
    }


def _ratio(one: float, other: float) -> float:
    return round(one / other, 3) if other else 0.0


def overview(setting: Setting) -> Row:
    """Ours beside the fixed idle time and the best possible, without and with waiting."""
    ours, fixed = ours_beside_fixed(setting, waits=False)
    waiting, fixed_waiting = ours_beside_fixed(setting, waits=True)
    best = best_possible(setting, fixed)
    return {
        "slots": setting.shape.slots,
        "shared": setting.shape.shared,
        "load s": setting.load_s,
        "fixed cold": fixed.whole.cold,
        "fixed h": round(fixed.whole.resident_s / 3600, 1),
        "ours cold": ours.whole.cold,
        "of fixed": _ratio(ours.whole.cold, fixed.whole.cold),
        "after 30 %": _ratio(ours.rest.cold, fixed.rest.cold),
        "time of fixed": _ratio(ours.whole.resident_s, fixed.whole.resident_s),
        "time after 30 %": _ratio(ours.rest.resident_s, fixed.rest.resident_s),
        "best possible": _ratio(best.whole.cold, fixed.whole.cold),
        "both wait": _ratio(waiting.whole.cold, fixed_waiting.whole.cold),
        "its time": _ratio(waiting.whole.resident_s, fixed_waiting.whole.resident_s),
    }


def _overview(setting: Setting) -> Row:
    with doing(f"{setting.shape.slots} slots, loads of {setting.load_s:g} s"):
        return overview(setting)


def shuffled(calls: Sequence[WarmCall], hours: float, seed: int) -> list[WarmCall]:
    """The calls in blocks of so many hours, each whole, in another order."""
    block_s = 3600 * hours
    blocks: dict[int, list[WarmCall]] = defaultdict(list)
    for call in calls:
        blocks[int(call[0] // block_s)].append(call)
    order = list(range(max(blocks, default=0) + 1))
    random.Random(seed).shuffle(order)
    return [
        (at + (place - block) * block_s, function, run_s)
        for place, block in enumerate(order)
        for at, function, run_s in blocks[block]
    ]


def calls_of(trace: str) -> list[WarmCall]:
    """All that are replayed of a trace, or drawn."""
    read = draw(BURSTS) if trace == "bursts" else read_trace(trace, load_settings().traces)
    names = [read.functions[index].name for index in read.function]
    return list(zip(read.arrival_s, names, read.run_s, strict=True))[: FIRST_CALLS[trace]]


@click.command()
@click.option("--trace", type=click.Choice(tuple(FIRST_CALLS)), default="genai", show_default=True, help="whose calls")
@click.option("--slots", type=click.IntRange(1), help="instances that one device holds")
@click.option("--load-s", type=click.FloatRange(0), help="seconds to load a model")
@click.option("--devices", type=click.IntRange(1), help="so many are there, and calls wait for room  [default: no end]")
@click.option("--shared-weights", is_flag=True, help="calls of a function on one device share its weights")
@click.option("--runs", type=click.IntRange(1), default=RUNS, show_default=True, help="calls at once, if they share")
@click.option(
    "--shuffled", "hours", type=click.FloatRange(0, min_open=True), help="blocks of so many hours in another order"
)
@click.option("--seed", default=1, show_default=True, help="of that order")
@json_option
def command(
    trace: str,
    slots: int | None,
    load_s: float | None,
    devices: int | None,
    shared_weights: bool,
    runs: int,
    hours: float | None,
    seed: int,
    as_json: bool,
) -> None:
    """Compare keep-warm rules under one assumption, or ours with the best possible under many.

    Under many (neither slots nor load given) it takes half an hour of processor time and more.
    """
    calls = calls_of(trace)
    if hours is not None:
        calls = shuffled(calls, hours, seed)

    def shape(held: int) -> Shape:
        return Shape(held, runs, shared=True) if shared_weights else Shape(held)

    if slots is None and load_s is None:
        rows = [_overview(Setting(calls, shape(held), load, devices)) for held in SLOTS for load in LOADS_S]
    else:
        setting = Setting(calls, shape(slots or 4), 30.0 if load_s is None else load_s, devices)
        with doing(f"all rules, {setting.shape.slots} slots, loads of {setting.load_s:g} s"):
            rows = compare(setting)
    if as_json:
        show_json(rows)
    else:
        show_rows(rows, tuple(rows[0]), empty="")


if __name__ == "__main__":
    command()
