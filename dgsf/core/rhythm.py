"""Functions that are called at regular intervals, such as schedules: when the next call is due.

A function is regular while its last few intervals agree with each other.  Then it needs no instance between two calls:
one is loaded shortly before the next is due.  Anything irregular is left to the rates of `core.arrivals`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median

INTERVALS = 6  # remembered
ENOUGH = 4  # to call it regular
SHORTEST_S = 30.0  # below that, an instance is as well kept as loaded anew
TOLERANCE = 0.1  # of the interval


@dataclass(frozen=True, slots=True)
class Due:
    """The time in which the next call is expected."""

    begin: float
    end: float

    def rate(self, now: float, ahead_s: float = 0.0) -> float:
        """Calls per second now: one call between begin, less the time to load for it, and end."""
        begin = self.begin - ahead_s
        return 1 / (self.end - begin) if begin <= now <= self.end else 0.0


class Rhythm:
    """The recent intervals of every function."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._intervals: dict[str, deque[float]] = {}
        self._due: dict[str, Due] = {}

    def saw(self, function: str, now: float) -> None:
        last = self._last.get(function)
        self._last[function] = now
        if last is None:
            return
        intervals = self._intervals.setdefault(function, deque(maxlen=INTERVALS))
        intervals.append(now - last)
        due = _due(intervals, now)
        if due is None:
            self._due.pop(function, None)
        else:
            self._due[function] = due

    def due(self, function: str, now: float) -> Due | None:
        """When it is due next; None if it is not regular, or late beyond its tolerance."""
        due = self._due.get(function)
        return due if due is not None and now <= due.end else None

    def all_due(self, now: float) -> list[str]:
        """Those that are regular now."""
        return [function for function, due in self._due.items() if now <= due.end]

    def forget(self, function: str) -> None:
        self._last.pop(function, None)
        self._intervals.pop(function, None)
        self._due.pop(function, None)


def _due(intervals: deque[float], now: float) -> Due | None:
    if len(intervals) < ENOUGH:
        return None
    usual = median(intervals)
    worst = max(abs(interval - usual) for interval in intervals)
    if usual < SHORTEST_S or worst > TOLERANCE * usual:
        return None
    margin = 1.5 * worst + 1.0
    return Due(now + usual - margin, now + usual + margin)
