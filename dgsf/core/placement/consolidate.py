"""Which running tasks should move so that a device can be given up, and how many may move in an hour.

A pure decision over a pool and who is where; moving itself is a session's live migration (drain, copy, rebind).  A move
is a placement: it goes through the same filters and costs, to devices of the same type that are in use anyway.  Every
move costs something, so it must save more, and the devices that stay keep room for what arrives next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dgsf.core.placement.hours import Lasting, hours_cost
from dgsf.core.placement.model import NO_SLICE, WHOLE, Placement, Request
from dgsf.core.placement.policy import placed
from dgsf.core.placement.pool import Bools, Floats, Ints, Place, Pool

HOUR = 3600.0
TRIED = 16  # devices that are tried, the most promising first


@dataclass(frozen=True, slots=True)
class MoveRules:
    """What a move costs, and when it is worth that; every figure is an assumption that can be set."""

    per_hour: float = 60.0  # moves at most, saved up for one hour
    copy_s: float = 10.0  # both devices hold the task so long
    pause_s: float = 1.0  # the task stands still so long and ends so much later
    least_saved_s: float = 225.0  # seconds of a device that each move must save
    stays_free_s: float = 1200.0  # a device that is given up is believed to be needed again after so long
    room_left: int = 250  # thousandths that the devices in use must have left afterwards
    soon_s: float = 60.0  # tasks that end within this are not moved


@dataclass(frozen=True, slots=True)
class Running:
    """A task, where it is, and when it is expected to end."""

    key: int
    request: Request
    placement: Placement
    ends_s: float
    movable: bool = True

    @property
    def may_move(self) -> bool:
        """A share of one device that is not part of a slice."""
        where = self.placement
        return self.movable and len(where.columns) == 1 and where.owned_slice == NO_SLICE and where.share < WHOLE


@dataclass(frozen=True, slots=True)
class Move:
    """A task and where it goes."""

    key: int
    to: Placement


class Budget:
    """How many moves may be made now: so many per hour, saved up for an hour at most, or until it is one."""

    def __init__(self, per_hour: float) -> None:
        self._per_hour = per_hour
        self._most = max(1.0, per_hour)
        self._saved = per_hour
        self._at = 0.0

    def left(self, now_s: float) -> int:
        self._saved = min(self._most, self._saved + (now_s - self._at) * self._per_hour / HOUR)
        self._at = now_s
        return int(self._saved)

    def spend(self, moves: int) -> None:
        self._saved -= moves


def moves_to_give_up_one(
    pool: Pool, on: Mapping[Place, Sequence[Running]], now_s: float, rules: MoveRules, most: int
) -> list[Move]:
    """The at most `most` moves that give up the device for which each move saves most; none if none is worth it."""
    best: list[Move] = []
    most_saved = rules.least_saved_s
    targets = _Targets(pool, on, now_s, rules.stays_free_s)
    for saved, place, movers in _candidates(on, now_s, rules, most):
        if saved / len(movers) < most_saved:
            break  # the others promise even less
        if targets.room_without(place) < rules.room_left + sum(task.placement.share for task in movers):
            continue
        found = targets.fit(place, movers)
        if found is None:
            continue
        moves, longer_s = found
        each = (saved - longer_s) / len(moves)
        if each > most_saved or (each == most_saved and not best):
            best, most_saved = moves, each
    return best


def _candidates(
    on: Mapping[Place, Sequence[Running]], now_s: float, rules: MoveRules, most: int
) -> list[tuple[float, Place, list[Running]]]:
    """Devices that could be given up, what that saves if no other is used for longer, and the tasks that must move."""
    found = []
    for place, tasks in on.items():
        movers = [task for task in tasks if task.ends_s > now_s + rules.soon_s]
        if not movers or len(movers) > most or not all(task.may_move for task in movers):
            continue
        free_at = max([now_s + rules.copy_s, *(task.ends_s for task in tasks if task.ends_s <= now_s + rules.soon_s)])
        until = min(max(task.ends_s for task in movers), now_s + rules.stays_free_s)
        saved = until - free_at - rules.pause_s * len(movers)
        if saved >= rules.least_saved_s * len(movers):
            found.append((saved, place, movers))
    return sorted(found, key=lambda each: (-each[0] / len(each[2]), each[1]))[:TRIED]


class _Targets:
    """The devices in use, as arrays of their own: trying changes nothing."""

    def __init__(self, pool: Pool, on: Mapping[Place, Sequence[Running]], now_s: float, typical_s: float) -> None:
        self._pool, self._now, self._typical_s = pool, now_s, typical_s
        self._places = sorted(place for place, tasks in on.items() if tasks)
        self._rows: Ints = np.array([row for row, _ in self._places], dtype=np.int64)
        self._columns: Ints = np.array([column for _, column in self._places], dtype=np.int64)
        self._until: Floats = np.array([max(task.ends_s for task in on[place]) for place in self._places])
        self._room: Ints = pool.room[self._rows, self._columns]

    def room_without(self, place: Place) -> int:
        """What the other devices of its type that are in use have left, in all."""
        alike = self._pool.model[self._rows] == self._pool.model[place[0]]
        return int(self._room[alike].sum()) - int(self._pool.room[place])

    def fit(self, source: Place, movers: Sequence[Running]) -> tuple[list[Move], float] | None:
        """Largest first, each to where it costs least; with the time that other devices are in use for longer."""
        pool = self._pool
        room, until = self._room.copy(), self._until.copy()
        memory = pool.memory[self._rows, self._columns]
        cpu, host = pool.cpu[self._rows].copy(), pool.host_memory[self._rows].copy()
        allowed = (pool.model[self._rows] == pool.model[source[0]]) & self._other_than(source)
        moves, longer_s = [], 0.0
        for task in sorted(movers, key=lambda each: (-each.placement.share, each.key)):
            request, share = task.request, task.placement.share
            able = allowed & (room >= share) & (memory >= request.memory_bytes)
            able &= (cpu >= request.cpu_milli) & (host >= request.host_memory)
            if not able.any():
                return None
            best = self._cheapest(able, room - share, until, task.ends_s)
            row, column = self._places[best]
            moves.append(Move(task.key, placed(pool, row, (column,), share)))
            longer_s += max(0.0, task.ends_s - float(until[best]))
            until[best] = max(until[best], task.ends_s)
            room[best] -= share
            memory[best] -= request.memory_bytes
            same_node = np.isin(self._rows, pool.siblings[row])
            cpu[same_node] -= request.cpu_milli
            host[same_node] -= request.host_memory
        return moves, longer_s

    def _other_than(self, place: Place) -> Bools:
        others: Bools = (self._rows != place[0]) | (self._columns != place[1])
        return others

    def _cheapest(self, able: Bools, rest: Ints, until: Floats, ends_s: float) -> int:
        lasting = Lasting(ends_s - self._now, self._typical_s)
        cost = hours_cost(until, rest, np.zeros(len(until), dtype=np.bool_), self._now, lasting)
        return int(np.where(able, cost, np.inf).argmin())
