"""Samples of a run over time: how much is allocated, how much is free but useless, how many calls wait."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dgsf.core.placement import Request
from dgsf.sim.workload import Workload

if TYPE_CHECKING:
    from dgsf.sim.engine import Simulator

SAMPLES = 100


class Timeline:
    """A hundred looks at the pool, evenly over the calls."""

    def __init__(self, workload: Workload, requests: list[Request]) -> None:
        self._every = max(1, workload.calls // SAMPLES)
        self._shapes = _popular(workload, requests)
        self.at_s: list[float] = []
        self.allocated: list[float] = []
        self.fragmented: list[float] = []
        self.waiting: list[int] = []

    def look(self, call: int, run: Simulator) -> None:
        if call % self._every:
            return
        self.at_s.append(run.now)
        self.allocated.append(run.machine.booked / (1000 * run.machine.devices))
        self.fragmented.append(run.machine.fragmentation(self._shapes))
        self.waiting.append(run.waiting)


def _popular(workload: Workload, requests: list[Request]) -> list[tuple[Request, float]]:
    """One request of each shape that needs a device, with its part of all calls, most called first."""
    by_shape: dict[object, Request] = {}
    counts: Counter[object] = Counter()
    for function, calls in sorted(Counter(workload.function).items()):
        request = requests[function]
        if request.devices or request.share:
            by_shape.setdefault(request.shape, request)
            counts[request.shape] += calls
    total = sum(counts.values()) or 1
    return [(by_shape[shape], calls / total) for shape, calls in counts.most_common()]
