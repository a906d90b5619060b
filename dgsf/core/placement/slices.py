"""Policies over tenant-exclusive slices: a task's share is rounded up to a fraction that the hardware can cut off.

A slice belongs to one tenant until its last task leaves; further tasks of that tenant may join it.  Conspirator takes
the first that fits; with whole devices as the only fraction the same rule is sharing among tasks of one tenant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import ClassVar

import numpy as np

from dgsf.core.placement.model import NEW_SLICE, WHOLE, Placement, Request
from dgsf.core.placement.need import Need
from dgsf.core.placement.policy import Policy, placed
from dgsf.core.placement.pool import OwnedSlice, Place, Pool

SEVENTHS = (140, 280, 420, 570, 1000)
# ours: seconds of one device, tuned as in hours.py
SLICE_LONGER = 1.08  # per device share of a slice and second that the slice lives longer
SLICE_ROOM = 48.0
JOINING = -427.0
DEVICE_ROOM = 190.0
OPENING = 82.0
SLICE_TIME = 0.86  # per device share of a new slice and second
MISMATCH = 0.044


class Conspirator(Policy):
    """First fit: a slice of the tenant with room, else a new slice on a device in use, else on an idle one."""

    name: ClassVar[str] = "conspirator"

    def __init__(self, fractions: Sequence[int] = SEVENTHS) -> None:
        self._fractions = tuple(sorted(fractions))

    def decides(self, request: Request) -> bool:
        return request.devices == 0 and bool(request.share) and request.share != WHOLE

    def decide(self, pool: Pool, need: Need, random: Random) -> Placement | None:
        joined = next(self._joinable(pool, need), None)
        if joined is not None:
            (row, column), mine = joined
            return placed(pool, row, (column,), 0, mine.number)
        size = self._size(need)
        found = _with_room(pool, need, size)
        if not found:
            return None
        row, column = min(found, key=lambda place: (need.rank[place[0]], *_turn(pool, place)))
        return placed(pool, row, (column,), size, NEW_SLICE)

    def _size(self, need: Need) -> int:
        """The smallest fraction that holds the request; a whole device if none does."""
        return next((size for size in self._fractions if size >= (need.request.share or 0)), WHOLE)

    def _joinable(self, pool: Pool, need: Need) -> Iterator[tuple[Place, OwnedSlice]]:
        """Slices of the tenant that have room and are on a device that may be used."""
        request = need.request
        in_use = [place for place, owned in pool.slices.items() if owned]
        for place in sorted(in_use, key=lambda place: _turn(pool, place)):
            for mine in pool.slices[place]:
                room = mine.share - mine.used >= (request.share or 0)
                if room and mine.tenant == request.tenant and _may_use(pool, need, place):
                    yield place, mine


class SlicedHours(Conspirator):
    """The same slices, placed for the fewest GPU hours where the expected duration is known."""

    name: ClassVar[str] = "dgsf_slices"

    def decide(self, pool: Pool, need: Need, random: Random) -> Placement | None:
        duration = need.request.duration_s
        if not duration:
            return super().decide(pool, need, random)
        size = self._size(need)
        joinable = self._joinable(pool, need)
        joins = [(self._join_cost(pool, need, place, mine), place, mine.number) for place, mine in joinable]
        opens = [(self._open_cost(pool, need, place, size), place, NEW_SLICE) for place in _with_room(pool, need, size)]
        options = [(int(need.rank[place[0]]), cost, place, number) for cost, place, number in joins + opens]
        if not options:
            return None
        _, _, (row, column), number = min(options)
        return placed(pool, row, (column,), size if number == NEW_SLICE else 0, number)

    def _join_cost(self, pool: Pool, need: Need, place: Place, mine: OwnedSlice) -> float:
        end = pool.now + need.request.duration_s
        left = mine.share - mine.used - (need.request.share or 0)
        longer = max(0.0, end - mine.until) * mine.share / WHOLE
        return max(0.0, end - float(pool.until[place])) + SLICE_LONGER * longer + SLICE_ROOM * left / WHOLE + JOINING

    def _open_cost(self, pool: Pool, need: Need, place: Place, size: int) -> float:
        duration = need.request.duration_s
        until = max(pool.now, float(pool.until[place]))
        beyond = until - pool.now - duration
        cost = max(0.0, -beyond) + DEVICE_ROOM * (int(pool.room[place]) - size) / WHOLE
        cost += SLICE_TIME * duration * size / WHOLE + MISMATCH * max(0.0, beyond)
        return cost + (OPENING if pool.tasks[place] == 0 else 0.0)


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


def _with_room(pool: Pool, need: Need, size: int) -> list[Place]:
    """Devices that can give a new slice; of idle ones only the first of each row."""
    rows, columns = np.nonzero(pool.room >= size)
    places: list[Place] = []
    idle_rows: set[int] = set()
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        idle = pool.tasks[row, column] == 0
        if _may_use(pool, need, (row, column)) and not (idle and row in idle_rows):
            places.append((row, column))
            if idle:
                idle_rows.add(row)
    return places
