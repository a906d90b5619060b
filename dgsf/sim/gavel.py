"""The heterogeneity experiment: training jobs of Gavel's table on a mix of K80, P100 and V100 devices.

Each job takes one whole device until its work is done; jobs that find none free wait.  The figure of merit is the mean
completion time.  A policy that knows speeds also says which of the waiting jobs a free device suits best.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from dgsf.core.placement import DeviceView, Placement, Placer, Policy, Pool, Request
from dgsf.core.placement.gavel import Gavel
from dgsf.core.placement.model import PLENTY, WHOLE
from dgsf.core.placement.speeds import parse_speeds
from dgsf.errors import TraceError
from dgsf.sim.tracefiles import published

TABLE_FILE = "gavel_throughputs.json"
TYPES = ("k80", "p100", "v100")
Speeds = dict[tuple[str, str], float]  # (model, device type) -> steps per second


@dataclass(frozen=True, slots=True)
class Job:
    arrival_s: float
    model: str
    steps: float


def read_speeds(path: Path, types: Sequence[str] = TYPES) -> Speeds:
    """Steps per second of each model alone on one device, for models that run on every type."""
    try:
        speeds = parse_speeds(published(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise TraceError(f"{path}: {error}") from error
    for type_ in types:
        if not any(type_ == known for _, known in speeds):
            raise TraceError(f"{path}: no table for device type '{type_}'")
    everywhere = {model for model, _ in speeds if all((model, type_) in speeds for type_ in types)}
    return {pair: speed for pair, speed in speeds.items() if pair[0] in everywhere and pair[1] in types}


def draw_jobs(speeds: Speeds, count: int, rate_per_s: float, random: Random, mean_s: float = 3600.0) -> list[Job]:
    """Random models that would run for `mean_s` on average on the fastest type, arriving at random."""
    models = sorted({model for model, _ in speeds})
    jobs, now = [], 0.0
    for _ in range(count):
        now += random.expovariate(rate_per_s)
        model = models[random.randrange(len(models))]
        best = max(speeds[model, type_] for type_ in TYPES)
        jobs.append(Job(now, model, random.expovariate(1 / mean_s) * best))
    return jobs


def mixed_pool(counts: Mapping[str, int], random: Random) -> Pool:
    """So many devices of each type, in random order."""
    types = [type_ for type_, count in counts.items() for _ in range(count)]
    random.shuffle(types)
    return Pool.of(
        DeviceView(number, type_, "cuda", True, 1, PLENTY, 1, PLENTY, free_share=WHOLE)
        for number, type_ in enumerate(types)
    )


def blind_rate(speeds: Speeds, counts: Mapping[str, int], mean_s: float = 3600.0) -> float:
    """Jobs per second that keep the pool just busy when types are picked without looking."""
    models = sorted({model for model, _ in speeds})
    slowdown = 0.0
    for type_, count in counts.items():
        ratios = [max(speeds[model, each] for each in TYPES) / speeds[model, type_] for model in models]
        slowdown += count * sum(ratios) / len(ratios)
    devices = sum(counts.values())
    return devices / (mean_s * slowdown / devices)


def mean_completion(jobs: Sequence[Job], pool: Pool, policy: Policy, speeds: Speeds) -> float:
    """Mean seconds from arrival to end."""
    return _Run(pool, policy, speeds).through(jobs)


class _Run:
    def __init__(self, pool: Pool, policy: Policy, speeds: Speeds) -> None:
        self._pool = pool
        self._policy = policy
        self._speeds = speeds
        self._placer = Placer(pool, policy, Random(0))  # noqa: S311 (repeatable on purpose)
        self._waiting: list[Job] = []
        self._running: list[tuple[float, int, float, Request, Placement]] = []
        self._number = 0
        self._spent = 0.0

    def through(self, jobs: Sequence[Job]) -> float:
        for job in jobs:
            self._end_until(job.arrival_s)
            self._waiting.append(job)
            self._start(job.arrival_s)
        self._end_until(float("inf"))
        return self._spent / len(jobs)

    def _end_until(self, now: float) -> None:
        while self._running and self._running[0][0] <= now:
            end, _, began, request, placement = heapq.heappop(self._running)
            self._pool.give_back(request, placement)
            self._policy.ran(request.whose, self._type_of(placement), end - began)
            self._start(end)

    def _start(self, now: float) -> None:
        while self._waiting:
            job = self._next(self._waiting)
            request = Request(("any",), 0, function=job.model, devices=1)
            answer = self._placer.place(request)
            if not isinstance(answer, Placement):
                return
            self._waiting.remove(job)
            end = now + job.steps / self._speeds[job.model, self._type_of(answer)]
            self._spent += end - job.arrival_s
            self._number += 1
            heapq.heappush(self._running, (end, self._number, now, request, self._pool.take(request, answer)))

    def _next(self, waiting: Sequence[Job]) -> Job:
        """The first come, or with a policy that knows speeds the one that the free devices suit best."""
        if not isinstance(self._policy, Gavel) or len(waiting) == 1:
            return waiting[0]
        policy = self._policy
        free = self._pool.model[(self._pool.room == WHOLE).any(axis=1)].tolist()
        types = sorted({self._pool.names[model][0] for model in free})
        return max(waiting, key=lambda job: policy.suits(("", job.model), types, TYPES))

    def _type_of(self, placement: Placement) -> str:
        return self._pool.names[int(self._pool.model[placement.row])][0]
