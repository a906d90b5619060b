"""The placement tables: `python -m loadtests.placement [--seeds 10] [--only openb,rate,hours,optimum,gavel]`.

Reads the public traces (DGSF_TRACES), runs every policy over them and prints what came out beside the published
figure or the goal.  Times are processor time, so that a busy machine disturbs them little.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from statistics import mean, stdev

from rich.console import Console
from rich.table import Table

from dgsf.config import load_settings
from dgsf.core.placement import Policy, Workload
from dgsf.core.placement.classic import BestFit, DotProduct, GpuClustering, GpuPacking, RandomFit
from dgsf.core.placement.fgd import Fgd
from dgsf.core.placement.gavel import Gavel
from dgsf.core.placement.ours import Dgsf
from dgsf.core.placement.slices import SEVENTHS, Conspirator, SlicedHours
from dgsf.errors import DgsfError
from dgsf.sim import gavel, openb, tenants, windows

console = Console(highlight=False)
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
CONSPIRATOR_HOURS = 479.0
MIXES = ({"k80": 12, "p100": 12, "v100": 12}, {"k80": 20, "p100": 10, "v100": 6}, {"k80": 6, "p100": 10, "v100": 20})
LOADS = (0.3, 0.5, 0.7, 0.9)


def table(title: str, *columns: str) -> Table:
    made = Table(title=title, title_justify="left")
    for column in columns:
        made.add_column(column, justify="left" if column == columns[0] else "right")
    return made


def show_openb(folder: Path, seeds: int) -> None:
    nodes, tasks = openb.read_nodes(folder), openb.read_tasks(folder)
    shown = table(
        f"openb: % of GPUs unallocated at 100 % asked, {seeds} seeds", "policy", "mean", "sd", "goal", "placements/s"
    )
    found: dict[str, list[float]] = {}
    for name, policy, goal in OPENB:
        with console.status(f"openb, {name}"):
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
    shown = table("placements per second, first 5,000 arrivals", "policy", "6212 GPUs", "62120 GPUs", "time ratio")
    for name, policy in (("fgd", Fgd), ("dgsf", Dgsf)):
        with console.status(f"rate, {name}"):
            small, large = (openb.rate(nodes, tasks, policy(Workload(tasks)), 1, copies, 5000) for copies in (1, 10))
        shown.add_row(name, f"{small:,.0f}", f"{large:,.0f}", f"{small / large:.1f}")
    console.print(shown)


def show_hours(folder: Path) -> None:
    tasks = tenants.read_tasks(folder / tenants.TASKS_FILE)
    rows: list[tuple[str, Policy, str]] = [  # each task stays where it was put
        ("GPUs shared within a tenant", Conspirator((1000,)), "702 ± 2 %"),
        ("conspirator: fractions", Conspirator(), "479 ± 2 %"),
        ("dgsf_slices: the same fractions", SlicedHours(), "≤ 455 (0.95)"),
        ("first fit, free shares", Policy(), ""),
        ("best fit, free shares", BestFit(), ""),
        ("dgsf, free shares", Dgsf(), "≤ 359 (0.75)"),
    ]
    shown = table("GPU hours of the fractional tenants", "policy", "hours", "÷ 479", "goal", "µs per task")
    for name, policy, goal in rows:
        used = tenants.run(tasks, policy)
        ratio = used.gpu_hours / CONSPIRATOR_HOURS
        shown.add_row(name, f"{used.gpu_hours:.1f}", f"{ratio:.3f}", goal, f"{used.seconds / used.tasks * 1e6:.0f}")
    for worth_s in (1800.0, 30.0):
        used = tenants.run(tasks, Dgsf(), worth_moving_s=worth_s)
        name = f"if tasks may move ({used.moves:,} moves, {worth_s:g} s saved by each)"
        shown.add_row(name, f"{used.gpu_hours:.1f}", f"{used.gpu_hours / CONSPIRATOR_HOURS:.3f}", "", "")
    for name, hours in (
        ("bound: shares rounded up", tenants.bound_hours(tasks)),
        ("pure work", tenants.work_hours(tasks)),
    ):
        shown.add_row(name, f"{hours:.1f}", f"{hours / CONSPIRATOR_HOURS:.3f}", "", "")
    console.print(shown)


def show_optimum(folder: Path, count: int, limit_s: float) -> None:
    tasks = tenants.read_tasks(folder / tenants.TASKS_FILE)
    for name, fractions, size in (("free shares", (), 28), ("fractions", [f // 10 for f in SEVENTHS], 25)):
        title = f"{name}: windows of {size} tasks, hours ÷ optimum (the solver has {limit_s:g} s)"
        shown = table(title, "window", "optimum", "planned", "one by one", "solver s", "faster")
        solved: list[windows.Compared] = []
        for start in windows.starts(len(tasks), size, count):
            with console.status(f"{name}, window at task {start}"):
                one = windows.compare(tasks[start : start + size], fractions, limit_s)
            solved += [one] if one.optimum.proved else []
            hours = f"{one.optimum.gpu_hours:.2f}" + ("" if one.optimum.proved else " (not proved)")
            ratios = (f"{one.planned:.3f}", f"{one.one_by_one:.3f}")
            shown.add_row(str(start), hours, *ratios, f"{one.optimum.seconds:.1f}", f"{one.faster:,.0f} x")
        console.print(shown)
        if solved:
            planned, online = mean(one.planned for one in solved), mean(one.one_by_one for one in solved)
            faster = sum(one.optimum.seconds for one in solved) / sum(one.plan_seconds for one in solved)
            console.print(
                f"{len(solved)} of {count} windows solved: planned {planned:.3f}, one by one {online:.3f}, "
                f"planning {faster:,.0f} x faster than the solver in all"
            )


def show_gavel(folder: Path, seeds: int) -> None:
    speeds = gavel.read_speeds(folder / gavel.TABLE_FILE)
    shown = table("mean completion time, gavel ÷ best fit (goal ≤ 0.8)", "pool", *(f"load {load}" for load in LOADS))
    for counts in MIXES:
        cells = []
        for load in LOADS:
            with console.status(f"gavel, load {load}"):
                cells.append(mean(_gavel_ratio(speeds, counts, load, seed) for seed in range(1, seeds + 1)))
        name = ", ".join(f"{count} {type_}" for type_, count in counts.items())
        shown.add_row(name, *(f"{cell:.2f}" for cell in cells))
    console.print(shown)


def _gavel_ratio(speeds: gavel.Speeds, counts: dict[str, int], load: float, seed: int) -> float:
    jobs = gavel.draw_jobs(speeds, 1000, load * gavel.blind_rate(speeds, counts), Random(seed))
    times = [
        gavel.mean_completion(jobs, gavel.mixed_pool(counts, Random(seed)), policy, speeds)
        for policy in (Gavel(speeds), BestFit())
    ]
    return times[0] / times[1]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="loadtests.placement", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", default="openb,rate,hours,optimum,gavel")
    parser.add_argument("--windows", type=int, default=6, help="windows for the solver")
    parser.add_argument("--solver-seconds", type=float, default=120.0)
    chosen = parser.parse_args(arguments)
    try:
        _show(chosen, load_settings().traces)
    except DgsfError as error:
        console.print(str(error), markup=False)
        return 1
    return 0


def _show(chosen: argparse.Namespace, folder: Path) -> None:
    tables: dict[str, Callable[[], None]] = {
        "openb": lambda: show_openb(folder, chosen.seeds),
        "rate": lambda: show_rate(folder),
        "hours": lambda: show_hours(folder),
        "optimum": lambda: show_optimum(folder, chosen.windows, chosen.solver_seconds),
        "gavel": lambda: show_gavel(folder, min(chosen.seeds, 3)),
    }
    for name, show in tables.items():
        if name in chosen.only.split(","):
            show()


if __name__ == "__main__":
    raise SystemExit(main())
