"""How calls that run on one device at the same time slow each other down.

Each call uses the device for a part of its run, its duty; one that is remoted for less, as it also waits for the link.
As long as the duties of all calls on a device sum to at most one, nobody waits; above that, all are slowed alike.
Interference adds a part for each neighbour on top.  When a neighbour comes or goes, the work left is re-timed; ends
that are out of date are recognised by their version.
"""

from __future__ import annotations

from collections.abc import Callable

from dgsf.sim.instance import Instance
from dgsf.sim.rules import Rules
from dgsf.sim.workload import Workload


class Sharing:
    """The calls on each device and their present slow-down."""

    def __init__(self, interference: float, later_end: Callable[[Instance, float], None]) -> None:
        self._interference = interference
        self._later_end = later_end
        self._on: dict[int, dict[Instance, float]] = {}

    def joined(self, item: Instance, duty: float, now: float) -> None:
        item.updated = now
        item.slow = 0.0  # not timed yet
        for device in item.devices:
            self._on.setdefault(device, {})[item] = duty
        self._retime(item, now)
        self._neighbours(item, now)

    def left(self, item: Instance, now: float) -> None:
        for device in item.devices:
            del self._on[device][item]
        self._neighbours(item, now)

    def _neighbours(self, item: Instance, now: float) -> None:
        for device in item.devices:
            for other in self._on[device]:
                if other is not item:
                    self._retime(other, now)

    def _retime(self, item: Instance, now: float) -> None:
        slow = max((self._slow(device) for device in item.devices), default=1.0)
        if slow == item.slow:
            return
        if item.slow:
            item.work = max(0.0, item.work - (now - item.updated) / item.slow)
        item.updated = now
        item.slow = slow
        item.version += 1
        self._later_end(item, now + item.work * slow)

    def _slow(self, device: int) -> float:
        calls = self._on[device]
        return max(1.0, sum(calls.values())) * (1 + self._interference * (len(calls) - 1))


def contended(workload: Workload, rules: Rules) -> bool:
    """Whether calls on one device slow each other down: only if their duties say so or interference is set."""
    shared = any(0 < item.share < 1000 and item.duty * 1000 > item.share for item in workload.functions)
    return not rules.exclusive and (rules.interference > 0 or shared)
