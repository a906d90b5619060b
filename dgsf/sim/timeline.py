"""A run over time: how much is allocated, how much is free but useless, how many calls wait.

Each value is the mean from its moment to the next one, so nothing is missed, however short it is or in whichever rhythm
it comes.  Moments are evenly apart and go from the start to the end of the run, which nobody knows beforehand: whenever
there are too many, every two become one.
"""

from __future__ import annotations

from operator import add
from typing import TYPE_CHECKING

from dgsf.sim.workload import Workload

if TYPE_CHECKING:
    from dgsf.sim.engine import Simulator

SAMPLES = 100  # and up to twice as many
_SHORTEST_S = 1e-6  # of all runs


class Timeline:
    """A hundred or two means, evenly over time; the last value is what is left at the end."""

    def __init__(self, workload: Workload) -> None:
        ends_s = max(map(add, workload.arrival_s, workload.run_s), default=0.0)  # if no call waits
        self._step_s = max(_SHORTEST_S, ends_s) / SAMPLES
        self._since_s = 0.0
        self._before = (0.0, 0.0, 0.0)  # what had added up by then
        self.next_s = self._step_s  # until when the present mean goes
        self.at_s: list[float] = []
        self.allocated: list[float] = []
        self.fragmented: list[float] = []
        self.waiting: list[float] = []

    def reach(self, at_s: float, run: Simulator) -> None:
        """Nothing more changes before `at_s`: all means that end before are known."""
        while self.next_s < at_s:
            self._end(self.next_s, run)
            if len(self.at_s) == 2 * SAMPLES:
                self._thin()
            self.next_s = (len(self.at_s) + 1) * self._step_s

    def close(self, run: Simulator) -> None:
        """The run has ended."""
        self.reach(run.now, run)
        if run.now > self._since_s:
            self._end(run.now, run)
        machine = run.machine
        self._add(run.now, machine.booked, machine.useless.now(), run.waiting, machine.devices)

    def _end(self, at_s: float, run: Simulator) -> None:
        """The present mean goes until here."""
        machine = run.machine
        totals = (machine.booked_until(at_s), machine.useless.until(at_s), run.waited_until(at_s))
        lasted = at_s - self._since_s
        booked, useless, waiting = ((now - then) / lasted for now, then in zip(totals, self._before, strict=True))
        self._add(self._since_s, booked, useless, waiting, machine.devices)
        self._since_s, self._before = at_s, totals

    def _add(self, at_s: float, booked: float, useless: float, waiting: float, devices: int) -> None:
        self.at_s.append(at_s)
        self.allocated.append(min(1.0, booked / (1000 * devices)))  # means of what is all the pool are rounded
        self.fragmented.append(min(1.0, useless / (1000 * devices)))
        self.waiting.append(waiting)

    def _thin(self) -> None:
        self._step_s *= 2
        del self.at_s[1::2]
        for means in (self.allocated, self.fragmented, self.waiting):
            means[:] = [(first + second) / 2 for first, second in zip(means[::2], means[1::2], strict=True)]
