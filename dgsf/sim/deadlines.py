"""By when calls should be done, and what placement is told of that: the time left, and how long a call takes.

As in production, how long calls of a function take is learned from those that have run, on each type of device apart.
It is told only where it can matter: to functions that a faster device makes faster, on pools of several types.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dgsf.core.placement import Request
from dgsf.core.scaling import RunTimes
from dgsf.sim.rules import Rules
from dgsf.sim.workload import Workload


@dataclass(frozen=True, slots=True)
class Due:
    """One call: how long there is left, and how long it is expected to take on this type (0: not known)."""

    left_s: float
    run_s: float
    run_on: str

    def told_to(self, request: Request) -> Request:
        return replace(request, deadline_s=self.left_s, run_s=self.run_s, run_on=self.run_on)


class Deadlines:
    """What is known of run times, and what follows for a call."""

    def __init__(self, workload: Workload, rules: Rules) -> None:
        self._workload = workload
        self._rules = rules
        self._run_times = [RunTimes() for _ in workload.functions]

    def ran(self, function: int, type_: str, seconds: float) -> None:
        """A call has run for so long on a device of this type, loading not counted."""
        self._run_times[function].saw(type_, round(seconds * 1e6))

    def of(self, call: int, now: float) -> Due | None:
        """None: a faster device does not help it."""
        function = self._workload.function[call]
        if not self._workload.functions[function].scales:
            return None
        until = self._workload.arrival_s[call] + self._rules.limit_s(self._workload.run_s[call])
        return Due(max(0.0, until - now), *self._run_times[function].latest)
