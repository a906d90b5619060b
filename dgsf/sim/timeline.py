"""Samples of a run over time: how much is allocated, how much is free but useless, how many calls wait.

They are evenly apart and go from the start to the end of the run, which nobody knows beforehand: whenever there are too
many, every other one is dropped.  So there is little to do, however many events there are.
"""

from __future__ import annotations

from collections import Counter
from operator import add
from typing import TYPE_CHECKING

from dgsf.core.placement import Request
from dgsf.sim.workload import Workload

if TYPE_CHECKING:
    from dgsf.sim.engine import Simulator

SAMPLES = 100  # and up to twice as many
SHAPES = 32  # the most called, which stand for all
_SHORTEST_S = 1e-6  # of all runs


class Timeline:
    """A hundred or two looks at the pool, evenly over time."""

    def __init__(self, workload: Workload, requests: list[Request]) -> None:
        ends_s = max(map(add, workload.arrival_s, workload.run_s), default=0.0)  # if no call waits
        self._step_s = max(_SHORTEST_S, ends_s) / SAMPLES
        self._shapes = _popular(workload, requests)
        self.next_s = 0.0  # when to look again
        self.at_s: list[float] = []
        self.allocated: list[float] = []
        self.fragmented: list[float] = []
        self.waiting: list[int] = []

    def reach(self, at_s: float, run: Simulator) -> None:
        """Nothing more changes before `at_s`: looks at all moments until then."""
        if self.next_s >= at_s:
            return
        seen = self._seen(run)
        while self.next_s < at_s:
            self._add(self.next_s, *seen)
            if len(self.at_s) == 2 * SAMPLES:
                self._thin()
            self.next_s = len(self.at_s) * self._step_s

    def close(self, run: Simulator) -> None:
        """The run has ended; the last sample is what is left then."""
        self.reach(run.now, run)
        self._add(run.now, *self._seen(run))

    def _seen(self, run: Simulator) -> tuple[float, float, int]:
        machine = run.machine
        return machine.booked / (1000 * machine.devices), machine.fragmentation(self._shapes), run.waiting

    def _add(self, at_s: float, allocated: float, fragmented: float, waiting: int) -> None:
        self.at_s.append(at_s)
        self.allocated.append(allocated)
        self.fragmented.append(fragmented)
        self.waiting.append(waiting)

    def _thin(self) -> None:
        self._step_s *= 2
        for samples in (self.at_s, self.allocated, self.fragmented, self.waiting):
            del samples[1::2]


def _popular(workload: Workload, requests: list[Request]) -> list[tuple[Request, float]]:
    """One request of each of the most called shapes that need a device, with its part of their calls."""
    by_shape: dict[object, Request] = {}
    counts: Counter[object] = Counter()
    for function, calls in sorted(Counter(workload.function).items()):
        request = requests[function]
        if request.devices or request.share:
            by_shape.setdefault(request.shape, request)
            counts[request.shape] += calls
    popular = counts.most_common(SHAPES)
    total = sum(calls for _, calls in popular)
    return [(by_shape[shape], calls / total) for shape, calls in popular]
