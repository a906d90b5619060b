"""GPU hours of the fractional tenants: never moving, as the trace defines them, and with bounded live moves.

The bound says what no placement can beat; a plan is made from nothing, with the whole trace known beforehand.  A move
costs what its rules state: both devices hold the task while it is copied, it stands still for a moment and ends so
much later; both are in the hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import process_time

from dgsf.core.placement import Policy
from dgsf.core.placement.classic import BestFit
from dgsf.core.placement.consolidate import MoveRules
from dgsf.core.placement.model import WHOLE
from dgsf.core.placement.ours import Dgsf
from dgsf.core.placement.slices import Conspirator, SlicedHours
from dgsf.core.policies import DEFAULT_PLACEMENT
from dgsf.sim import tenants
from dgsf.sim.engine import Simulator
from dgsf.sim.pools import load_pool
from dgsf.sim.repack import ROUNDS_PER_TASK, repack
from dgsf.sim.result import Result, summarise
from dgsf.sim.rules import Rules
from dgsf.sim.tenants import HOUR, Task
from dgsf.sim.traces import read_trace
from loadtests.placement_tables import console, table
from loadtests.progress import doing, telling

CONSPIRATOR_HOURS = 479.0
POOLS = ("T4:64x1", "T4:8x8")


def show(folder: Path) -> None:
    _show_still(folder)
    _show_moving(folder)


def _show_still(folder: Path) -> None:
    tasks = tenants.read_tasks(folder / tenants.TASKS_FILE)
    rows: list[tuple[str, Policy, str]] = [
        ("GPUs shared within a tenant", Conspirator((1000,)), "702 ± 2 %"),
        ("conspirator: fractions", Conspirator(), "479 ± 2 %"),
        ("dgsf_slices: the same fractions", SlicedHours(), "≤ 455 (0.95)"),
        ("first fit, free shares", Policy(), ""),
        ("best fit, free shares", BestFit(), ""),
        ("dgsf, free shares, one by one", Dgsf(), ""),
    ]
    shown = table(
        "GPU hours of the fractional tenants, never moving", "policy", "hours", "÷ 479", "goal", "µs per task"
    )
    for name, policy, goal in rows:
        with doing(name):
            used = tenants.run(tasks, policy)
        shown.add_row(name, *_hours(used.gpu_hours), goal, f"{used.seconds / used.tasks * 1e6:.0f}")
    began = process_time()
    hours = planned(tasks)
    micros = f"{(process_time() - began) / len(tasks) * 1e6:.0f}"
    shown.add_row("dgsf, free shares, planned beforehand", *_hours(hours), "≤ 359 (0.75)", micros)
    for name, hours in (
        ("bound: shares rounded up", tenants.bound_hours(tasks)),
        ("pure work", tenants.work_hours(tasks)),
    ):
        shown.add_row(name, *_hours(hours), "", "")
    console.print(shown)


def _hours(hours: float) -> tuple[str, str]:
    return f"{hours:.1f}", f"{hours / CONSPIRATOR_HOURS:.3f}"


def planned(tasks: Sequence[Task], rounds: int | None = None) -> float:
    """GPU hours of a plan that knows the whole trace; checked by another piece of code than made it."""
    intervals = [(task.arrival_s, task.end_s, task.percent * WHOLE // 100) for task in tasks]
    rounds = rounds or ROUNDS_PER_TASK * len(tasks)
    with telling(f"planning, {rounds / 1e6:g} million rounds") as tell:
        gpus, _ = repack(intervals, rounds, report=lambda done, of, best: tell(done / of, f"{best / HOUR:.1f} h"))
    return tenants.plan_hours(tasks, gpus)


def _show_moving(folder: Path) -> None:
    rules = MoveRules()
    title = (
        f"the same with live moves: a copy holds both GPUs for {rules.copy_s:g} s, a pause of {rules.pause_s:g} s, "
        f"each move must save {rules.least_saved_s:g} s (goal ≤ 0.75)"
    )
    columns = (
        "pool, durations",
        "moves/h at most",
        "hours",
        "÷ 479",
        "moves",
        "per task",
        "held twice, h",
        "pauses, h",
    )
    shown = table(title, *columns)
    for pool in POOLS:
        for durations in (True, False):
            for per_hour in (0.0, 10.0, rules.per_hour):
                moved = MoveRules(per_hour=per_hour) if per_hour else None
                found = _simulate(folder, pool, Rules(idle_s=0.0, durations=durations, moves=moved))
                known = "known" if durations else "not known"
                shown.add_row(f"{pool}, {known}", f"{per_hour:g}", *_figures(found, rules.pause_s))
    console.print(shown)


def _simulate(folder: Path, pool: str, rules: Rules) -> Result:
    trace = read_trace("tenants", folder, None)
    with doing(f"{pool}, at most {rules.moves.per_hour if rules.moves else 0:g} moves/h"):
        return summarise(Simulator(trace, load_pool(pool), DEFAULT_PLACEMENT, rules).run())


def _figures(found: Result, pause_s: float) -> tuple[str, ...]:
    return (
        f"{found.gpu_hours:.1f}",
        f"{found.gpu_hours / CONSPIRATOR_HOURS:.3f}",
        f"{found.moves:,.0f}",
        f"{found.moves / found.calls:.2f}",
        f"{found.twice_gpu_hours:.2f}",
        f"{found.moves * pause_s / 3600:.2f}",
    )
