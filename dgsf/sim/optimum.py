"""The yardstick: the assignment of tasks to GPUs with the fewest GPU hours, found and proved by a solver (OR-Tools).

It knows all tasks beforehand, which no placement does.  Time is cut at every arrival and end; a GPU is paid for in
each piece in which it holds a task.  With fractions, a task sits in a slice of its tenant; a slice is as large as the
smallest fraction that holds its first task, and its GPU holds it while any of its tasks runs.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dgsf.errors import UsageError
from dgsf.sim.extra import lacking
from dgsf.sim.tenants import HOUR, Task

MICRO = 1_000_000
_LOOK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class Optimum:
    """What the solver found."""

    gpu_hours: float
    bound_hours: float  # nothing can be below this
    proved: bool
    seconds: float  # of processor time
    tasks: int


def best_hours(
    tasks: Sequence[Task], limit_s: float, gpus: int, fractions: Sequence[int] = (), workers: int = 1
) -> Optimum:
    """The fewest GPU hours for these tasks; `fractions` (in %) asks for tenant-exclusive slices.

    `gpus` is how many GPUs it may use: take as many as some placement needs, and one more.  `limit_s` is processor
    time, so that a busy machine does not decide what counts as solvable.
    """
    cp_model = _solver()
    model = _Model(cp_model.CpModel(), tasks, gpus)
    if fractions:
        model.add_slices(sorted(fractions))
    else:
        model.add_shares()
    model.model.minimize(model.cost())
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = 0
    started = time.process_time()
    with _stopped_after(limit_s, solver.stop_search):
        status = solver.solve(model.model)
    seconds = time.process_time() - started
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise UsageError(f"the solver found no assignment of {len(tasks)} tasks to {gpus} GPUs in {limit_s:g} s")
    scale = MICRO * HOUR
    return Optimum(
        solver.objective_value / scale,
        solver.best_objective_bound / scale,
        status == cp_model.OPTIMAL,
        seconds,
        len(tasks),
    )


@contextmanager
def _stopped_after(limit_s: float, stop: Callable[[], None]) -> Iterator[None]:
    """Calls `stop`, again and again, once this process has used so much more processor time."""
    until = time.process_time() + limit_s
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK_EVERY_S):
            if time.process_time() >= until:
                stop()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _solver() -> Any:
    try:
        return importlib.import_module("ortools.sat.python.cp_model")
    except ImportError as error:
        raise lacking("the optimum", "OR-Tools") from error


class _Model:
    """The assignment as a model of the solver's."""

    def __init__(self, model: Any, tasks: Sequence[Task], gpus: int) -> None:
        self.model = model
        self._tasks = tasks
        self._gpus = range(gpus)
        times = sorted({task.arrival_s for task in tasks} | {task.end_s for task in tasks})
        self._pieces = list(pairwise(times))
        self._active = [
            [i for i, task in enumerate(tasks) if task.arrival_s <= start and task.end_s >= end]
            for start, end in self._pieces
        ]
        self._arrivals = {task.arrival_s for task in tasks}
        self._on = [[model.new_bool_var("") for _ in self._gpus] for _ in tasks]  # task, gpu
        self._used = [[model.new_bool_var("") for _ in self._gpus] for _ in self._pieces]  # piece, gpu
        self._assign()

    def _assign(self) -> None:
        """Each task on one GPU; the n-th task on one of the first n, since GPUs are alike."""
        for i, places in enumerate(self._on):
            self.model.add_exactly_one(places)
            for gpu in self._gpus[i + 1 :]:
                self.model.add(places[gpu] == 0)
        for piece, active in enumerate(self._active):
            asked = sum(self._tasks[i].percent for i in active)
            self.model.add(sum(self._used[piece]) >= -(-asked // 100))
            for gpu in self._gpus:
                for i in active:
                    self.model.add_implication(self._on[i][gpu], self._used[piece][gpu])

    def add_shares(self) -> None:
        """The shares on a GPU fit into it; enough to ask after each arrival."""
        for piece, active in enumerate(self._active):
            if self._pieces[piece][0] in self._arrivals:
                for gpu in self._gpus:
                    load = sum(self._tasks[i].percent * self._on[i][gpu] for i in active)
                    self.model.add(load <= 100 * self._used[piece][gpu])

    def add_slices(self, fractions: Sequence[int]) -> None:
        """Each task is in the slice of an earlier task of its tenant, or leads one of its own."""
        tasks = self._tasks
        leads = {
            (i, j): self.model.new_bool_var("")
            for i, task in enumerate(tasks)
            for j in range(i + 1)
            if tasks[j].tenant == task.tenant
        }
        size = [next(fraction for fraction in fractions if fraction >= task.percent) for task in tasks]
        for i in range(len(tasks)):
            self.model.add_exactly_one([var for (member, _), var in leads.items() if member == i])
        for (i, j), var in leads.items():
            if i != j:
                self.model.add_implication(var, leads[j, j])
                for gpu in self._gpus:
                    self.model.add(self._on[i][gpu] == self._on[j][gpu]).only_enforce_if(var)
        for piece, active in enumerate(self._active):
            if self._pieces[piece][0] in self._arrivals:
                self._fit_slices(active, leads, size)

    def _fit_slices(self, active: Sequence[int], leads: dict[tuple[int, int], Any], size: Sequence[int]) -> None:
        loads: list[list[Any]] = [[] for _ in self._gpus]
        for j in range(max(active, default=-1) + 1):
            members = [i for i in active if (i, j) in leads]
            if not members:
                continue
            alive = self.model.new_bool_var("")
            self.model.add(sum(self._tasks[i].percent * leads[i, j] for i in members) <= size[j] * alive)
            for gpu in self._gpus:
                here = self.model.new_bool_var("")
                self.model.add_bool_or(here, alive.negated(), self._on[j][gpu].negated())
                loads[gpu].append(size[j] * here)
        for load in loads:
            if load:
                self.model.add(sum(load) <= 100)

    def cost(self) -> Any:
        """GPU time in microseconds."""
        lengths = [round((end - start) * MICRO) for start, end in self._pieces]
        return sum(length * used for length, row in zip(lengths, self._used, strict=True) for used in row)
