"""Our placement beside the optimum, on windows of a trace that the solver can solve.

Two figures: planned, where we too know the whole window beforehand as the solver does, and one by one, where each task
is placed when it arrives.  Free shares are planned by `repack`, as whole traces are, with fewer rounds; fractions,
which it does not know, by `plan`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from dgsf.core.placement import Policy
from dgsf.core.placement.holdings import Slicing
from dgsf.core.placement.model import WHOLE
from dgsf.core.placement.ours import Dgsf
from dgsf.core.placement.plan import plan
from dgsf.core.placement.slices import SlicedHours
from dgsf.sim.optimum import Optimum, best_hours
from dgsf.sim.repack import repack
from dgsf.sim.tenants import HOUR, Task, run

ROUNDS = 1200  # of the plan with free shares, for some tens of tasks
REPEATS = 3  # of the plan; the quickest counts, the first also warms up


@dataclass(frozen=True, slots=True)
class Compared:
    """Hours over the optimum's, and times."""

    optimum: Optimum
    planned: float
    one_by_one: float
    plan_seconds: float  # of processor time

    @property
    def faster(self) -> float:
        return self.optimum.seconds / self.plan_seconds


def starts(tasks: int, size: int, count: int, quarters: int = 0) -> list[int]:
    """Where windows begin, evenly over the trace; so many quarters of the way from each to the next."""
    return [(tasks - size) * (4 * number + quarters) // (4 * count) for number in range(count)]


def compare(tasks: Sequence[Task], fractions: Sequence[int], limit_s: float) -> Compared:
    """One window; `fractions` in %, none for free shares."""
    policy: Policy = SlicedHours([10 * fraction for fraction in fractions]) if fractions else Dgsf()
    online = run(tasks, policy)
    timed = [_timed_plan(tasks, fractions) for _ in range(REPEATS)]
    gpus, planned, _ = timed[0]
    plan_seconds = min(seconds for _, _, seconds in timed)
    optimum = best_hours(tasks, limit_s, max(gpus) + 2, fractions)
    hours = optimum.gpu_hours
    return Compared(optimum, planned / HOUR / hours, online.gpu_hours / hours, plan_seconds)


def _timed_plan(tasks: Sequence[Task], fractions: Sequence[int]) -> tuple[list[int], float, float]:
    intervals = [(task.arrival_s, task.end_s, task.percent * WHOLE // 100) for task in tasks]
    sizes = [next((size for size in sorted(fractions) if size >= task.percent), 100) for task in tasks]
    slicing = Slicing([task.tenant for task in tasks], [size * WHOLE // 100 for size in sizes]) if fractions else None
    started = time.process_time()
    gpus, planned = plan(intervals, slicing) if slicing else repack(intervals, ROUNDS)
    return gpus, planned, time.process_time() - started
