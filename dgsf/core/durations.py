"""How long things take, learned from those that have ended: a moving median for each name.

What placement wants to know of a worker or a session is how long it will hold its slot.  A median of the last few is
robust against a single odd one and follows a change after half of them.  Names that were not heard of longest are
forgotten.  Nothing here reads a clock.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from statistics import median

REMEMBERED = 15  # durations of each name
NAMES = 10_000  # at most
OVERDUE = 0.25  # what is older than expected is expected to last for this part of its age


class Durations:
    """Expected durations in seconds by name."""

    def __init__(self, remembered: int = REMEMBERED, names: int = NAMES) -> None:
        self._remembered = remembered
        self._names = names
        self._seen: OrderedDict[Hashable, deque[float]] = OrderedDict()

    def saw(self, name: Hashable, seconds: float) -> None:
        """One that took so long has ended."""
        seen = self._seen.get(name)
        if seen is None:
            seen = self._seen[name] = deque(maxlen=self._remembered)
            if len(self._seen) > self._names:
                self._seen.popitem(last=False)
        seen.append(max(0.0, seconds))
        self._seen.move_to_end(name)

    def expected(self, name: Hashable) -> float:
        """0: nothing is known."""
        seen = self._seen.get(name)
        return float(median(seen)) if seen else 0.0


def remaining(expected_s: float, age_s: float) -> float:
    """How much longer something of this age lasts; if nothing is known of it, as long as it has lasted."""
    if not expected_s:
        return age_s
    return max(expected_s - age_s, OVERDUE * age_s)
