"""What is still to happen in a simulation: events in the order of their time, those of one time as they were made.

One heap of plain tuples is the virtual clock.  It knows no meaning of an event; `version` lets its owner tell one that
is out of date.
"""

from __future__ import annotations

import heapq

from dgsf.sim.instance import Instance

END, EXPIRE, COPIED, FAIL, REPAIR, LOOK = range(6)
Event = tuple[float, int, int, Instance | int, int]  # when, its number, kind, whom it concerns, version


class Agenda:
    """Events to come."""

    def __init__(self) -> None:
        self.events: list[Event] = []  # a heap; the loop reads it without a call for each
        self._made = 0

    def add(self, at: float, kind: int, what: Instance | int, version: int = 0) -> None:
        self._made += 1
        heapq.heappush(self.events, (at, self._made, kind, what, version))
