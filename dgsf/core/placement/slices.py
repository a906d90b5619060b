"""Policies over tenant-exclusive slices: a task's share is rounded up to a fraction that the hardware can cut off.

A slice belongs to one tenant until its last task leaves; further tasks of that tenant may join it.  Conspirator takes
the first that fits; with whole devices as the only fraction the same rule is sharing among tasks of one tenant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import ClassVar

import numpy as np

from dgsf.core.placement.hours import Typical
from dgsf.core.placement.model import NEW_SLICE, WHOLE, Placement, Request
from dgsf.core.placement.need import Need
from dgsf.core.placement.policy import Policy, placed
from dgsf.core.placement.pool import Floats, Ints, OwnedSlice, Place, Pool

SEVENTHS = (140, 280, 420, 570, 1000)
# ours: parts of a typical duration, where nothing else is said; tuned as in hours.py
SLICE_LONGER = 1.08  # per device share of a slice and second that the slice lives longer
SLICE_ROOM = 0.04
JOINING = -0.354
DEVICE_ROOM = 0.157
OPENING = 0.068
SLICE_TIME = 0.86  # per device share of a new slice and second
MISMATCH = 0.044


class Conspirator(Policy):
    """First fit: a slice of the tenant with room, else a new slice on a device in use, else on an idle one.

    The order of types comes before that: a slice on a type is joined only if no preferred one can give a new slice.
    """

    name: ClassVar[str] = "conspirator"

    def __init__(self, fractions: Sequence[int] = SEVENTHS) -> None:
        self._fractions = tuple(sorted(fractions))

    def decides(self, request: Request) -> bool:
        return request.devices == 0 and bool(request.share) and request.share != WHOLE

    def decide(self, pool: Pool, need: Need, random: Random) -> Placement | None:
        joined = next(self._joinable(pool, need), None)
        if joined is None:
            return self._open(pool, need)
        (row, column), mine = joined
        join, rank = placed(pool, row, (column,), 0, mine.number), need.rank[row]
        opened = self._open(pool, need) if rank else None  # nothing is preferred to the first type
        return opened if opened is not None and need.rank[opened.row] < rank else join

    def _open(self, pool: Pool, need: Need) -> Placement | None:
        """A new slice; None: no room for one."""
        size = self._size(need)
        rows, columns = _with_room(pool, need, size)
        if not len(rows):
            return None
        idle = pool.tasks[rows, columns] == 0
        turn = np.where(idle, np.iinfo(np.int64).max, pool.opened[rows, columns])
        first = _least(need.rank[rows], turn)
        return placed(pool, int(rows[first]), (int(columns[first]),), size, NEW_SLICE)

    def _size(self, need: Need) -> int:
        """The smallest fraction that holds the request; a whole device if none does."""
        return next((size for size in self._fractions if size >= (need.request.share or 0)), WHOLE)

    def _joinable(self, pool: Pool, need: Need) -> Iterator[tuple[Place, OwnedSlice]]:
        """Slices of the tenant that have room and are on a device that may be used, those on preferred types first."""
        tenant, share = need.request.tenant, need.request.share or 0
        found = [
            (place, mine)
            for place, owned in pool.slices.items()
            for mine in owned
            if mine.tenant == tenant and mine.share - mine.used >= share
        ]
        for place, mine in sorted(found, key=lambda each: (need.rank[each[0][0]], _turn(pool, each[0]))):
            if _may_use(pool, need, place):
                yield place, mine


class SlicedHours(Conspirator):
    """The same slices, placed for the fewest GPU hours where the expected duration is known."""

    name: ClassVar[str] = "dgsf_slices"

    def __init__(self, fractions: Sequence[int] = SEVENTHS) -> None:
        super().__init__(fractions)
        self._typical = Typical()

    def observe(self, request: Request, pool: Pool) -> None:
        super().observe(request, pool)
        if request.duration_s and self.decides(request):
            self._typical.saw(request.duration_s)

    def decide(self, pool: Pool, need: Need, random: Random) -> Placement | None:
        duration = need.request.duration_s
        if not duration:
            return super().decide(pool, need, random)
        size = self._size(need)
        joinable = self._joinable(pool, need)
        options = [
            (int(need.rank[place[0]]), self._join_cost(pool, need, place, mine), place, mine.number)
            for place, mine in joinable
        ]
        rows, columns = _with_room(pool, need, size)
        if len(rows):
            cost = self._open_cost(pool, need, rows, columns, size)
            best = _least(need.rank[rows], cost)
            row, column = int(rows[best]), int(columns[best])
            options.append((int(need.rank[row]), float(cost[best]), (row, column), NEW_SLICE))
        if not options:
            return None
        _, _, (row, column), number = min(options)
        return placed(pool, row, (column,), size if number == NEW_SLICE else 0, number)

    def _join_cost(self, pool: Pool, need: Need, place: Place, mine: OwnedSlice) -> float:
        now, duration = pool.now, need.request.duration_s
        left = mine.share - mine.used - (need.request.share or 0)
        device_s, slice_s = (max(now, until) - now for until in (float(pool.until[place]), mine.until))
        longer = max(0.0, duration - slice_s) * mine.share / WHOLE
        joining = self._typical.seconds * (SLICE_ROOM * left / WHOLE + JOINING)
        return max(0.0, duration - device_s) + SLICE_LONGER * longer + joining

    def _open_cost(self, pool: Pool, need: Need, rows: Ints, columns: Ints, size: int) -> Floats:
        duration, typical = need.request.duration_s, self._typical.seconds
        beyond = np.maximum(pool.now, pool.until[rows, columns]) - pool.now - duration
        cost: Floats = np.maximum(0.0, -beyond) + DEVICE_ROOM * typical * (pool.room[rows, columns] - size) / WHOLE
        cost += SLICE_TIME * duration * size / WHOLE + MISMATCH * np.maximum(0.0, beyond)
        return cost + np.where(pool.tasks[rows, columns] == 0, OPENING * typical, 0.0)


def _turn(pool: Pool, place: Place) -> tuple[bool, int, Place]:
    """Devices in use first, in the order in which they came into use; then idle ones."""
    idle = pool.tasks[place] == 0
    return (bool(idle), 0 if idle else int(pool.opened[place]), place)


def _may_use(pool: Pool, need: Need, place: Place) -> bool:
    row, request = place[0], need.request
    return bool(
        pool.usable[place]
        and need.rank[row] >= 0
        and pool.cpu[row] >= request.cpu_milli
        and pool.host_memory[row] >= request.host_memory
        and pool.memory[place] >= request.memory_bytes
    )


def _with_room(pool: Pool, need: Need, size: int) -> tuple[Ints, Ints]:
    """Devices that can give a new slice, in the order of the pool; of idle ones only the first of each row."""
    request = need.request
    rows = (need.rank >= 0) & (pool.cpu >= request.cpu_milli) & (pool.host_memory >= request.host_memory)
    able = (pool.room >= size) & (pool.memory >= request.memory_bytes) & rows[:, None]
    idle = able & (pool.tasks == 0)
    able &= ~idle
    first = np.flatnonzero(idle.any(axis=1))
    able[first, idle[first].argmax(axis=1)] = True
    found, columns = np.nonzero(able)
    return found, columns


def _least(rank: Ints, cost: Ints | Floats) -> int:
    """The first with the least cost among those of the most preferred type."""
    preferred = np.flatnonzero(rank == rank.min())
    return int(preferred[cost[preferred].argmin()])
