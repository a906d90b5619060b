"""Room that is free but of no use to the calls of a run, exactly over time: the integral, not a mean of samples.

A row of the pool is worth the same until it changes.  So what it was is noted whenever it changes, with how long it was
so, and worth is found for many notes at once: that costs little beside the placement that changes a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dgsf.core.placement import Pool, Request
from dgsf.core.placement.model import WHOLE
from dgsf.core.placement.pool import Bools, Floats, Ints
from dgsf.sim.workload import Workload

SHAPES = 32  # the most called, which stand for all
NOTES = 1024
Mix = Sequence[tuple[Request, float]]  # requests, and what part of all calls asks for such; together 1


@dataclass(frozen=True, slots=True)
class _Rows:
    """What is free in some rows of a pool."""

    room: Ints  # (rows, columns)
    memory: Ints
    cpu: Ints
    host_memory: Ints
    number: Ints

    def first(self, count: int) -> _Rows:
        columns = (self.room, self.memory, self.cpu, self.host_memory, self.number)
        return _Rows(*(column[:count] for column in columns))


class Useless:
    """Adds up thousandths of devices x seconds that are free, but that a call of the mix on average cannot use."""

    def __init__(self, pool: Pool, mix: Mix) -> None:
        self._pool = pool
        self._mix = [(request, weight, pool.rank(request.types) >= 0) for request, weight in mix]
        rows, columns = pool.room.shape
        self._now = _Rows(pool.room, pool.memory, pool.cpu, pool.host_memory, np.arange(rows))
        self._since = np.zeros(rows)
        narrow, wide = np.zeros((3, NOTES), dtype=np.int64), np.zeros((2, NOTES, columns), dtype=np.int64)
        self._notes = _Rows(*wide, *narrow)
        self._lasted = np.zeros(NOTES)
        self._noted = 0
        self._total = 0.0

    def changes(self, row: int, now: float) -> None:
        """What is free in this row and its siblings is about to change."""
        for each in self._pool.siblings[row] if self._mix else ():
            lasted = now - self._since[each]
            if lasted > 0:
                self._since[each] = now
                self._note(each, lasted)

    def _note(self, row: int, lasted: float) -> None:
        pool, notes, place = self._pool, self._notes, self._noted
        notes.room[place] = pool.room[row]
        notes.memory[place] = pool.memory[row]
        notes.cpu[place] = pool.cpu[row]
        notes.host_memory[place] = pool.host_memory[row]
        notes.number[place] = row
        self._lasted[place] = lasted
        self._noted += 1
        if self._noted == NOTES:
            self._add_up()

    def _add_up(self) -> None:
        count, self._noted = self._noted, 0
        if count:
            self._total += float(self._of(self._notes.first(count)) @ self._lasted[:count])

    def until(self, now: float) -> float:
        """All from the start until now."""
        self._add_up()
        if self._mix:
            self._total += float(self._of(self._now) @ (now - self._since))
            self._since.fill(now)
        return self._total

    def now(self) -> float:
        """Thousandths that are free and of no use at this moment."""
        return float(self._of(self._now).sum())

    def _of(self, rows: _Rows) -> Floats:
        free = rows.room.sum(axis=1)
        useless = np.zeros(len(free))
        for request, weight, of_type in self._mix:
            useless += weight * (free - _fit(rows, request, of_type))
        return useless


def _fit(rows: _Rows, request: Request, of_type: Bools) -> Ints:
    """What a request can use in each row."""
    usable = rows.room >= (request.share or WHOLE)
    if request.memory_bytes:
        usable &= rows.memory >= request.memory_bytes
    able = usable.sum(axis=1) >= max(1, request.devices)
    able &= (rows.cpu >= request.cpu_milli) & (rows.host_memory >= request.host_memory)
    able &= of_type[rows.number]
    fit: Ints = np.where(usable, rows.room, 0).sum(axis=1) * able
    return fit


def mix_of(workload: Workload, requests: Sequence[Request]) -> Mix:
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
