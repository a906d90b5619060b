"""The yardstick: the assignment of tasks to GPUs of least cost (MinGPUCost), found and proved by a solver (OR-Tools).

It knows all tasks beforehand, which no placement does.  Time is cut at every arrival and possible end; a GPU is paid
for in each piece in which it holds a task, at the price of its kind, and a task on a faster kind ends sooner.  With
equal GPUs that is the fewest GPU hours.  With fractions, a task sits in a slice of its tenant; a slice is as large as
the smallest fraction that holds its first task, and its GPU holds it while any of its tasks runs.  Once none runs, the
slice is gone, and the next task opens one of its own size.
"""

from __future__ import annotations

import importlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
class GpuKind:
    """GPUs that are alike: how many there may be, the price of an hour, and how many times faster tasks run."""

    name: str
    count: int
    price_per_h: float = 1.0
    speed: float = 1.0

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 <= self.price_per_h < math.inf or not 0 < self.speed < math.inf:
            raise UsageError(f"GPUs '{self.name}': expected a count and a speed above 0 and a price of at least 0")


@dataclass(frozen=True, slots=True)
class Cheapest:
    """What the solver found for several kinds."""

    cost: float
    bound: float  # nothing can be below this
    gpu_hours: float
    kinds: tuple[str, ...]  # of each task
    proved: bool
    seconds: float  # of processor time


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
    """The fewest GPU hours for these tasks, in order of arrival; `fractions` (in %) asks for tenant-exclusive slices.

    `gpus` is how many GPUs it may use: take as many as some placement needs, and one more.  `limit_s` is processor
    time, so that a busy machine does not decide what counts as solvable.
    """
    solved = _solve(tasks, [GpuKind("GPU", gpus)], limit_s, fractions, workers)
    return Optimum(solved.cost, solved.bound, solved.proved, solved.seconds, len(tasks))


def best_cost(
    tasks: Sequence[Task], kinds: Sequence[GpuKind], limit_s: float, fractions: Sequence[int] = (), workers: int = 1
) -> Cheapest:
    """The least that GPUs of these kinds cost for these tasks, whose durations are those at speed 1."""
    if not kinds:
        raise UsageError("the optimum needs at least one kind of GPU")
    return _solve(tasks, kinds, limit_s, fractions, workers)


def _solve(
    tasks: Sequence[Task], kinds: Sequence[GpuKind], limit_s: float, fractions: Sequence[int], workers: int
) -> Cheapest:
    cp_model = _solver()
    model = _Model(cp_model.CpModel(), tasks, kinds)
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
        gpus = sum(kind.count for kind in kinds)
        raise UsageError(f"the solver found no assignment of {len(tasks)} tasks to {gpus} GPUs in {limit_s:g} s")
    scale = MICRO * HOUR
    return Cheapest(
        cost=solver.objective_value / scale,
        bound=solver.best_objective_bound / scale,
        gpu_hours=solver.value(model.time()) / scale,
        kinds=tuple(model.kind_of(task, solver.value).name for task in range(len(tasks))),
        proved=status == cp_model.OPTIMAL,
        seconds=seconds,
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

    def __init__(self, model: Any, tasks: Sequence[Task], kinds: Sequence[GpuKind]) -> None:
        self.model = model
        self._tasks = tasks
        self._kinds = kinds
        self._kind_of = [number for number, kind in enumerate(kinds) for _ in range(kind.count)]  # of each GPU
        self._gpus = range(len(self._kind_of))
        self._gpus_of = [[gpu for gpu in self._gpus if self._kind_of[gpu] == number] for number in range(len(kinds))]
        self._ends = [[task.arrival_s + task.duration_s / kind.speed for task in tasks] for kind in kinds]
        self._arrivals = {task.arrival_s for task in tasks}
        self._pieces = list(pairwise(sorted(self._arrivals.union(*self._ends))))
        self._active = [  # kind, piece: tasks that run then, if they are on that kind
            [
                [i for i, task in enumerate(tasks) if task.arrival_s <= start and end_of[i] >= end]
                for start, end in self._pieces
            ]
            for end_of in self._ends
        ]
        self._on = [[model.new_bool_var("") for _ in self._gpus] for _ in tasks]  # task, gpu
        self._used = [[model.new_bool_var("") for _ in self._gpus] for _ in self._pieces]  # piece, gpu
        self._on_kind: dict[tuple[int, int], Any] = {}
        self._assign()

    def _assign(self) -> None:
        """Each task on one GPU; the n-th task on one of the first n of a kind, since those are alike."""
        for i, places in enumerate(self._on):
            self.model.add_exactly_one(places)
            for gpus in self._gpus_of:
                for gpu in gpus[i + 1 :]:
                    self.model.add(places[gpu] == 0)
        for piece in range(len(self._pieces)):
            everywhere = set.intersection(*(set(active[piece]) for active in self._active))
            asked = sum(self._tasks[i].percent for i in everywhere)
            self.model.add(sum(self._used[piece]) >= -(-asked // 100))
            for gpu in self._gpus:
                for i in self._active[self._kind_of[gpu]][piece]:
                    self.model.add_implication(self._on[i][gpu], self._used[piece][gpu])

    def add_shares(self) -> None:
        """The shares on a GPU fit into it; enough to ask after each arrival."""
        for piece in self._after_arrivals():
            for gpu in self._gpus:
                active = self._active[self._kind_of[gpu]][piece]
                load = sum(self._tasks[i].percent * self._on[i][gpu] for i in active)
                self.model.add(load <= 100 * self._used[piece][gpu])

    def _after_arrivals(self) -> list[int]:
        return [piece for piece, (start, _) in enumerate(self._pieces) if start in self._arrivals]

    def add_slices(self, fractions: Sequence[int]) -> None:
        """Each task is in the slice of an earlier task of its tenant, or leads one of its own."""
        tasks = self._tasks
        leads = {
            (i, j): self.model.new_bool_var("")
            for i, task in enumerate(tasks)
            for j in range(i + 1)
            if tasks[j].tenant == task.tenant
        }
        size = [_fraction(task, number, fractions) for number, task in enumerate(tasks)]
        for i in range(len(tasks)):
            self.model.add_exactly_one([var for (member, _), var in leads.items() if member == i])
        for (i, j), var in leads.items():
            if i != j:
                self.model.add_implication(var, leads[j, j])
                for gpu in self._gpus:
                    self.model.add(self._on[i][gpu] == self._on[j][gpu]).only_enforce_if(var)
                for number in range(len(self._kinds)):
                    self._join_alive(number, i, j, leads)
        for piece in self._after_arrivals():
            for number in range(len(self._kinds)):
                self._fit_slices(number, self._active[number][piece], leads, size)

    def _join_alive(self, kind: int, task: int, leader: int, leads: Mapping[tuple[int, int], Any]) -> None:
        """The task is in this leader's slice only if an earlier member still runs when it arrives, on this kind."""
        arrival = self._tasks[task].arrival_s
        ends = self._ends[kind]
        running = [leads[k, leader] for k in range(leader, task) if (k, leader) in leads and ends[k] > arrival]
        elsewhere = [self._is_on(leader, kind).negated()] if len(self._kinds) > 1 else []
        self.model.add_bool_or(leads[task, leader].negated(), *running, *elsewhere)

    def _fit_slices(
        self, kind: int, active: Sequence[int], leads: Mapping[tuple[int, int], Any], size: Sequence[int]
    ) -> None:
        """Of tasks that run then on this kind, the slices fit into its GPUs, and the tasks into the slices."""
        gpus = self._gpus_of[kind]
        loads: dict[int, list[Any]] = {gpu: [] for gpu in gpus}
        for j in range(max(active, default=-1) + 1):
            members = [i for i in active if (i, j) in leads]
            if not members:
                continue
            alive = self.model.new_bool_var("")
            held = self.model.add(sum(self._tasks[i].percent * leads[i, j] for i in members) <= size[j] * alive)
            if len(self._kinds) > 1:
                held.only_enforce_if(self._is_on(j, kind))
            for gpu in gpus:
                here = self.model.new_bool_var("")
                self.model.add_bool_or(here, alive.negated(), self._on[j][gpu].negated())
                loads[gpu].append(size[j] * here)
        for load in loads.values():
            if load:
                self.model.add(sum(load) <= 100)

    def _is_on(self, task: int, kind: int) -> Any:
        if (task, kind) not in self._on_kind:
            self._on_kind[task, kind] = var = self.model.new_bool_var("")
            self.model.add(sum(self._on[task][gpu] for gpu in self._gpus_of[kind]) == var)
        return self._on_kind[task, kind]

    def cost(self) -> Any:
        """The price of GPU time, in microseconds of a GPU that costs 1 an hour."""
        return self._paid([kind.price_per_h for kind in self._kinds])

    def time(self) -> Any:
        """GPU time in microseconds."""
        return self._paid([1.0] * len(self._kinds))

    def _paid(self, prices: Sequence[float]) -> Any:
        return sum(
            round((end - start) * MICRO * prices[self._kind_of[gpu]]) * used
            for (start, end), row in zip(self._pieces, self._used, strict=True)
            for gpu, used in enumerate(row)
        )

    def kind_of(self, task: int, value: Callable[[Any], int]) -> GpuKind:
        """The kind that a task was put on."""
        return self._kinds[self._kind_of[next(gpu for gpu in self._gpus if value(self._on[task][gpu]))]]


def _fraction(task: Task, number: int, fractions: Sequence[int]) -> int:
    """The smallest that holds the task."""
    for fraction in fractions:
        if fraction >= task.percent:
            return fraction
    asked = f"task {number} of tenant '{task.tenant}' asks for {task.percent} % of a GPU"
    raise UsageError(f"{asked}; the largest fraction is {fractions[-1]} %: add 100 to the fractions")
