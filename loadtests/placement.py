"""The placement tables: every policy over the public traces (folder: DGSF_TRACES), beside the published figure or goal.

`python -m loadtests.placement` takes half an hour and more, most of it the solver's; `--only openb,rate` picks
tables.  Times are processor time, so that a busy machine disturbs them little.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from statistics import mean, stdev

from dgsf.config import load_settings
from dgsf.core.placement import Policy, Request, Speeds, Workload, make_policy
from dgsf.core.placement.classic import BestFit, DotProduct, GpuClustering, GpuPacking, RandomFit
from dgsf.core.placement.fgd import Fgd
from dgsf.core.placement.ours import Dgsf
from dgsf.errors import DgsfError
from dgsf.sim import gavel, openb
from loadtests import placement_default, placement_hours, placement_optimum, placement_rate, placement_slots
from loadtests.placement_tables import console, table
from loadtests.progress import doing

OPENB: list[tuple[str, Callable[[Workload], Policy], str]] = [
    ("random", lambda _: RandomFit(), "13.70 ± 0.4"),
    ("dot_product", lambda _: DotProduct(), "9.38 ± 0.4"),
    ("gpu_clustering", lambda _: GpuClustering(), "8.35 ± 0.4"),
    ("gpu_packing", lambda _: GpuPacking(), "8.22 ± 0.4"),
    ("best_fit", lambda _: BestFit(), "7.14 ± 0.15"),
    ("fgd", Fgd, "4.77 ± 0.15"),
    ("fgd, learning", lambda _: Fgd(), ""),
    ("dgsf", Dgsf, "≤ 4.1, below fgd each time"),
    ("dgsf, learning", lambda _: Dgsf(), "at most 0.3 above dgsf"),
]
MIXES = ({"k80": 12, "p100": 12, "v100": 12}, {"k80": 20, "p100": 10, "v100": 6}, {"k80": 6, "p100": 10, "v100": 20})
HETEROGENEOUS = {
    "gavel, its table": ("gavel", True),
    "gavel, learning": ("gavel", False),
    "dgsf, its table": ("dgsf", True),
    "dgsf, learning": ("dgsf", False),
}
LOADS = (0.3, 0.5, 0.7, 0.9)
TABLES = {
    "openb": "GPUs left unallocated",
    "default": "the default policy beside all others",
    "mixed": "the default policy beside all others on pools of several types",
    "slots": "drawn workers on slots of two types, durations known or not",
    "rate": "placements per second, from a pool that is booked and as the proxy asks",
    "hours": "GPU hours of the tenants, never moving and moving; planning them takes a minute",
    "size": "how many tasks the solver can prove: half an hour and more, not among the usual",
    "optimum": "plans beside the proved optimum",
    "gavel": "completion times on mixed pools",
}
USUAL = tuple(name for name in TABLES if name != "size")


def show_openb(folder: Path, seeds: int) -> None:
    nodes, tasks = openb.read_nodes(folder), openb.read_tasks(folder)
    shown = table(
        f"openb: % of GPUs unallocated at 100 % asked, {seeds} seeds", "policy", "mean", "sd", "goal", "placements/s"
    )
    found: dict[str, list[float]] = {}
    for name, policy, goal in OPENB:
        with doing(f"openb, {name}, {seeds} seeds"):
            runs = [openb.fill(nodes, tasks, policy, seed) for seed in range(1, seeds + 1)]
        figures = found[name] = [run.unallocated for run in runs]
        spread = stdev(figures) if seeds > 1 else 0.0
        speed = mean((run.placed + run.refused) / run.seconds for run in runs)
        shown.add_row(name, f"{mean(figures):.2f}", f"{spread:.2f}", goal, f"{speed:,.0f}")
    console.print(shown)
    better = sum(ours < theirs for ours, theirs in zip(found["dgsf"], found["fgd"], strict=True))
    console.print(f"dgsf is below fgd on {better} of {seeds} seeds")


def show_rate(folder: Path) -> None:
    nodes, tasks = openb.read_nodes(folder), openb.read_tasks(folder)
    title = "placements per second, first 5,000 arrivals, policies by name (goal: 2,000; time ratio at most 10)"
    shown = table(title, "policy", "6212 GPUs", "62120 GPUs", "time ratio")

    def show(words: str, rate: Callable[[int], float]) -> None:
        with doing(f"rate, {words}"):
            small, large = rate(1), rate(10)
        shown.add_row(words, f"{small:,.0f}", f"{large:,.0f}", f"{small / large:.1f}")

    def of_trace(words: str, policy: str, nodes: list[openb.OpenbNode], tasks: list[Request]) -> None:
        show(words, lambda copies: openb.rate(nodes, tasks, make_policy(policy), 1, copies, 5000))

    for name in ("fgd", "dgsf", "conspirator"):
        of_trace(name, name, nodes, tasks)
    lasting = [replace(task, duration_s=60.0 * (1 + number % 60)) for number, task in enumerate(tasks)]
    of_trace("dgsf, durations known", "dgsf", nodes, lasting)
    apart, single = placement_rate.one_by_one(nodes), [task for task in tasks if task.devices <= 1]
    for name in ("fgd", "dgsf"):
        of_trace(f"{name}, one GPU per node", name, apart, single)
    for mixed, words in ((False, "as the proxy calls it"), (True, "the proxy's workers and sessions mixed")):
        for name in ("fgd", "dgsf"):
            ask = partial(placement_rate.as_the_proxy, nodes, name, count=5000, mixed=mixed)
            show(f"{name}, {words}", ask)
    console.print(shown)


def show_gavel(folder: Path, seeds: int) -> None:
    """Policies by name, with the table of speeds as the settings would name it, and learning from runs alone."""
    speeds = gavel.read_speeds(folder / gavel.TABLE_FILE)
    title = "mean completion time ÷ best fit's (goal for gavel with its table ≤ 0.8)"
    shown = table(title, "pool", "policy", *(f"load {load}" for load in LOADS))
    for counts in MIXES:
        pool = ", ".join(f"{count} {type_}" for type_, count in counts.items())
        found: dict[str, list[float]] = {name: [] for name in HETEROGENEOUS}
        for load in LOADS:
            with doing(f"gavel, {counts}, load {load}"):
                ratios = [_gavel_ratios(speeds, counts, load, seed) for seed in range(1, seeds + 1)]
            for name in found:
                found[name].append(mean(each[name] for each in ratios))
        for name, cells in found.items():
            shown.add_row(pool, name, *(f"{cell:.2f}" for cell in cells))
    console.print(shown)


def _gavel_ratios(speeds: gavel.Speeds, counts: dict[str, int], load: float, seed: int) -> dict[str, float]:
    jobs = gavel.draw_jobs(speeds, 1000, load * gavel.blind_rate(speeds, counts), Random(seed))

    def took(policy: Policy) -> float:
        return gavel.mean_completion(jobs, gavel.mixed_pool(counts, Random(seed)), policy, speeds)

    blind = took(make_policy("best_fit"))
    return {
        words: took(make_policy(name, Speeds(speeds) if knows else None)) / blind
        for words, (name, knows) in HETEROGENEOUS.items()
    }


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _tables(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in TABLES:
            raise argparse.ArgumentTypeError(f"no table is called {name!r}; there are {', '.join(TABLES)}")
    return names


def _sets(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in placement_optimum.SETS:
            known = ", ".join(placement_optimum.SETS)
            raise argparse.ArgumentTypeError(f"no set of windows is called {name!r}; there are {known}")
    return names


def _about_tables() -> str:
    return "; ".join(f"{name}: {about}" for name, about in TABLES.items())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="loadtests.placement", description=__doc__)
    parser.add_argument("--seeds", type=_positive, default=10, help="of openb (10); fewer count for other tables")
    parser.add_argument("--only", type=_tables, default=USUAL, metavar="TABLE,...", help=_about_tables())
    parser.add_argument("--windows", type=_positive, default=10, help="windows for the solver, of each set (10)")
    sets = tuple(placement_optimum.SETS)
    parser.add_argument("--sets", type=_sets, default=sets, metavar="SET,...", help=f"of windows: {', '.join(sets)}")
    parser.add_argument("--solver-seconds", type=float, default=60.0, help="of processor time, for one window (60)")
    chosen = parser.parse_args(arguments)
    try:
        _show(chosen, load_settings().traces)
    except DgsfError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


def _show(chosen: argparse.Namespace, folder: Path) -> None:
    tables: dict[str, Callable[[], None]] = {
        "openb": lambda: show_openb(folder, chosen.seeds),
        "default": lambda: placement_default.show(folder, chosen.seeds),
        "mixed": lambda: placement_default.show_mixed(chosen.seeds),
        "slots": lambda: placement_slots.show(min(chosen.seeds, 2)),
        "rate": lambda: show_rate(folder),
        "hours": lambda: placement_hours.show(folder),
        "size": lambda: placement_optimum.show_size(folder, chosen.windows, chosen.solver_seconds),
        "optimum": lambda: placement_optimum.show(folder, chosen.windows, chosen.solver_seconds, chosen.sets),
        "gavel": lambda: show_gavel(folder, min(chosen.seeds, 3)),
    }
    for name, show in tables.items():
        if name in chosen.only:
            show()


if __name__ == "__main__":
    raise SystemExit(main())
