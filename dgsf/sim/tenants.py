"""The GPU-hours experiment: short tasks of several tenants that each ask for a part of one GPU.

Every task starts when it arrives and never moves.  The figure of merit is the integral over time of the number of GPUs
that hold at least one task.  The bounds say what no placement can beat.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from dgsf.core.placement import DeviceView, Placement, Placer, Policy, Pool, Request
from dgsf.core.placement.model import PLENTY, WHOLE
from dgsf.core.placement.plan import time_in_use
from dgsf.errors import TraceError
from dgsf.sim.tracefiles import in_order, numbered_rows, published, seconds, text, whole

TASKS_FILE = "fractional_tenants.csv"
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Task:
    tenant: str
    arrival_s: float
    duration_s: float
    percent: int

    @property
    def end_s(self) -> float:
        return self.arrival_s + self.duration_s

    def request(self) -> Request:
        return Request(("any",), 0, tenant=self.tenant, share=self.percent * WHOLE // 100, duration_s=self.duration_s)


@dataclass(frozen=True, slots=True)
class Usage:
    """What one run used."""

    gpu_hours: float
    most_gpus: int
    tasks: int
    seconds: float  # of processor time, spent deciding and booking


def read_tasks(path: Path) -> list[Task]:
    """The tasks in order of arrival."""
    columns = {"tenant": text, "arrival_s": seconds(), "duration_s": seconds(1e-6), "gpu_percent": whole(1, 100)}
    rows = numbered_rows(published(path), columns)
    return [Task(*row.values()) for row in in_order(rows, "arrival_s")]


def gpu_pool(gpus: int) -> Pool:
    """So many GPUs, each on a node of its own."""
    return Pool.of(
        DeviceView(each, "gpu", "cuda", True, 1, PLENTY, 1, PLENTY, free_share=WHOLE) for each in range(gpus)
    )


class _Meter:
    """How many GPUs are in use, over time."""

    def __init__(self) -> None:
        self.in_use = self.most = 0
        self.gpu_seconds = 0.0
        self._since = 0.0

    def change(self, now: float, by: int) -> None:
        self.gpu_seconds += (now - self._since) * self.in_use
        self._since = now
        self.in_use += by
        self.most = max(self.most, self.in_use)


class _Run:
    """Tasks that come and go over a pool of GPUs."""

    def __init__(self, policy: Policy, gpus: int, seed: int) -> None:
        self.pool = gpu_pool(gpus)
        self.placer = Placer(self.pool, policy, Random(seed))  # noqa: S311 (repeatable on purpose)
        self.meter = _Meter()
        self._ends: list[tuple[float, int]] = []
        self._running: dict[int, tuple[Request, Placement, float]] = {}

    def arrive(self, key: int, task: Task) -> None:
        self.pool.now = task.arrival_s
        request = task.request()
        answer = self.placer.place(request)
        if not isinstance(answer, Placement):
            raise TraceError(f"{len(self.pool.nodes)} GPUs are too few for these tasks: {answer.reason}")
        self._put(key, request, answer, task.end_s)
        heapq.heappush(self._ends, (task.end_s, key))

    def end_until(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            self.pool.now, key = heapq.heappop(self._ends)
            self._take_out(key)

    def _put(self, key: int, request: Request, placement: Placement, end: float) -> None:
        opens = self.pool.tasks[placement.row, placement.columns[0]] == 0
        self.meter.change(self.pool.now, int(opens))
        self._running[key] = (request, self.pool.take(request, placement, end), end)

    def _take_out(self, key: int) -> None:
        request, placement, end = self._running.pop(key)
        self.pool.give_back(request, placement, end)
        self.meter.change(self.pool.now, -int(self.pool.tasks[placement.row, placement.columns[0]] == 0))


def run(tasks: Sequence[Task], policy: Policy, gpus: int = 64, seed: int = 0) -> Usage:
    """All tasks through one policy; tasks that end at an instant leave before those that arrive then."""
    life = _Run(policy, gpus, seed)
    started = time.process_time()
    for key, task in enumerate(tasks):
        life.end_until(task.arrival_s)
        life.arrive(key, task)
    life.end_until(float("inf"))
    seconds = time.process_time() - started
    return Usage(life.meter.gpu_seconds / HOUR, life.meter.most, len(tasks), seconds)


def plan_hours(tasks: Sequence[Task], gpus: Sequence[int]) -> float:
    """The GPU hours of a plan that somebody brings, the GPU of each task; checked, not believed."""
    if len(gpus) != len(tasks):
        raise TraceError(f"the plan is for {len(gpus)} tasks, there are {len(tasks)}")
    ends = [(task.end_s, -task.percent, gpu) for task, gpu in zip(tasks, gpus, strict=True)]
    arrivals = [(task.arrival_s, task.percent, gpu) for task, gpu in zip(tasks, gpus, strict=True)]
    used: Counter[int] = Counter()
    for now, percent, gpu in sorted(ends + arrivals):  # at one instant, ends come first
        used[gpu] += percent
        if used[gpu] > 100:
            raise TraceError(f"the plan uses {used[gpu]} % of GPU {gpu} at {now:g} s")
    intervals = [(task.arrival_s, task.end_s, task.percent) for task in tasks]
    return time_in_use(intervals, gpus) / HOUR


def work_hours(tasks: Sequence[Task]) -> float:
    """Pure work: what perfectly divisible tasks would use."""
    return sum(task.duration_s * task.percent for task in tasks) / 100 / HOUR


def bound_hours(tasks: Sequence[Task]) -> float:
    """No placement uses less: at each instant the shares in use, rounded up to whole GPUs."""
    events = sorted(
        [(task.end_s, -task.percent) for task in tasks] + [(task.arrival_s, task.percent) for task in tasks]
    )
    asked, since, total = 0, 0.0, 0.0
    for now, percent in events:
        total += (now - since) * -(-asked // 100)
        asked, since = asked + percent, now
    return total / HOUR
