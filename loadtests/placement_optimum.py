"""Our plans and our one-by-one placement beside the proved optimum, on windows of the fractional tenants.

The size of the windows is the largest, in steps of two, of which the solver proves at least 80 % within its limit of
processor time, one thread; it was found (`--only size`) on the windows halfway between the first ones.  The search was
designed with the first windows in view, and mended on others all over the trace that overlap none of the fresh ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from dgsf.core.placement.slices import SEVENTHS
from dgsf.sim import tenants, windows
from loadtests.placement_tables import console, table
from loadtests.progress import doing

FRACTIONS = [fraction // 10 for fraction in SEVENTHS]
Kind = tuple[str, Sequence[int], int]  # name, fractions, tasks of a window
KINDS: tuple[Kind, ...] = (("free shares", (), 28), ("fractions", FRACTIONS, 22))
SETS = {"first": 0, "halfway": 2, "fresh": 1}  # quarters of the way from each of the first windows to the next
SMALLEST, STEP = 18, 2
ENOUGH = 0.8


def show(folder: Path, count: int, limit_s: float, sets: Sequence[str]) -> None:
    tasks = tenants.read_tasks(folder / tenants.TASKS_FILE)
    for kind in KINDS:
        for which in sets:
            _show_set(tasks, kind, which, count, limit_s)


def _show_set(tasks: Sequence[tenants.Task], kind: Kind, which: str, count: int, limit_s: float) -> None:
    name, fractions, size = kind
    title = f"{name}: {which} windows of {size} tasks, hours ÷ optimum (the solver has {limit_s:g} s)"
    shown = table(title, "window", "optimum", "planned", "one by one", "solver s", "plan ms", "faster")
    solved: list[windows.Compared] = []
    for number, start in enumerate(windows.starts(len(tasks), size, count, SETS[which]), start=1):
        with doing(f"{name}, {which} window {number} of {count}, from task {start}"):
            one = windows.compare(tasks[start : start + size], fractions, limit_s)
        solved += [one] if one.optimum.proved else []
        hours = f"{one.optimum.gpu_hours:.2f}" + ("" if one.optimum.proved else " (not proved)")
        times = (f"{one.optimum.seconds:.1f}", f"{one.plan_seconds * 1e3:.1f}", f"{one.faster:,.0f} x")
        shown.add_row(str(start), hours, f"{one.planned:.3f}", f"{one.one_by_one:.3f}", *times)
    console.print(shown)
    if solved:
        _summarise(solved, count)


def _summarise(solved: Sequence[windows.Compared], count: int) -> None:
    planned, online = [one.planned for one in solved], [one.one_by_one for one in solved]
    single = [one.faster for one in solved]
    faster = sum(one.optimum.seconds for one in solved) / sum(one.plan_seconds for one in solved)
    console.print(
        f"{len(solved)} of {count} windows proved: planned {mean(planned):.3f} (at most {max(planned):.3f}), one by "
        f"one {mean(online):.3f} (at most {max(online):.3f}); planning is {faster:,.0f} x faster than the solver "
        f"in all (single windows {min(single):,.0f} x to {max(single):,.0f} x)"
    )


def show_size(folder: Path, count: int, limit_s: float) -> None:
    """Searches the largest size of window that the solver can still prove often enough."""
    tasks = tenants.read_tasks(folder / tenants.TASKS_FILE)
    for name, fractions, _ in KINDS:
        size = SMALLEST
        while (proved := _proved(tasks, fractions, size, count, limit_s)) >= ENOUGH - 1e-9:
            console.print(f"{name}, windows of {size} tasks: {proved:.0%} proved")
            size += STEP
        console.print(f"{name}: {size} tasks are too many, {size - STEP} it is")


def _proved(tasks: Sequence[tenants.Task], fractions: Sequence[int], size: int, count: int, limit_s: float) -> float:
    """The part of the windows that is proved; no more are tried than it takes to know that they are too few."""
    failed, allowed = 0, round((1 - ENOUGH) * count)
    for number, start in enumerate(windows.starts(len(tasks), size, count, SETS["halfway"]), start=1):
        with doing(f"windows of {size} tasks, {number} of {count}, {failed} not proved yet"):
            one = windows.compare(tasks[start : start + size], fractions, limit_s)
        failed += not one.optimum.proved
        if failed > allowed:
            break
    return 1 - failed / count
