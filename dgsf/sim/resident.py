"""Where each function's weights are or lately were, as placement is told in production: devices draw it back.

Production tells placement which functions are on a device and which were within the last half hour in that life of the
device (`core.residency`).  Here the pool lives on, so its own table is kept up to date instead of made anew.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import replace

import numpy as np

from dgsf.core.placement import Placement, Placer, Refusal, Request
from dgsf.core.placement.model import WHOLE
from dgsf.core.placement.need import RANK_STEP, Need
from dgsf.core.placement.ours import Dgsf
from dgsf.core.placement.policy import placed
from dgsf.core.placement.pool import Bools, Place, Pool
from dgsf.core.residency import LATELY_S
from dgsf.sim.instance import Instance

MOST_PLACES = 32  # with the weights and room that are looked at; where there are more, any of the first will do
FEW_PLACES = 64  # with the weights: as fast gone through one by one as found in an array


class Resident:
    """Keeps `Pool.resident` true."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._there: Counter[tuple[str, Place]] = Counter()  # instances that hold them now
        self._left: dict[str, OrderedDict[Place, float]] = {}  # weights: when each place lost them, longest ago first
        self._names: dict[Place, set[str]] = {}
        self._tables: dict[str, Bools] = {}  # the places of weights that are at more than a few

    def came(self, item: Instance) -> None:
        name = item.request.weights
        for column in item.placement.columns if name else ():
            place = (item.row, column)
            self._there[name, place] += 1
            self._pool.resident.setdefault(name, set()).add(place)
            self._left.setdefault(name, OrderedDict()).pop(place, None)
            self._names.setdefault(place, set()).add(name)
            if name in self._tables:
                self._tables[name][place] = True

    def went(self, item: Instance, now: float) -> None:
        name = item.request.weights
        for column in item.placement.columns if name else ():
            place = (item.row, column)
            self._there[name, place] -= 1
            if not self._there[name, place]:
                del self._there[name, place]
                if place in self._pool.resident[name]:  # not on a device that has failed since
                    self._left[name][place] = now

    def refresh(self, name: str, now: float) -> None:
        """Before it is placed: what was there long ago is not there any more."""
        left = self._left.get(name)
        while left:
            place = next(iter(left))
            if now - left[place] <= LATELY_S:
                return
            self._drop(name, place)
            self._names[place].discard(name)

    def with_room(self, name: str, share: int) -> list[Place]:
        """The first places that have the weights and so much room, at most `MOST_PLACES`."""
        there, room = self._pool.resident.get(name, ()), self._pool.room
        if len(there) <= FEW_PLACES:
            left = room.item  # of one place at a time; an index would make a numpy number of each
            return sorted(place for place in there if left(*place) >= share)[:MOST_PLACES]
        found = np.flatnonzero(self._table(name) & (room >= share))[:MOST_PLACES]
        return [divmod(place, room.shape[1]) for place in found.tolist()]

    def _table(self, name: str) -> Bools:
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = np.zeros(self._pool.room.shape, dtype=np.bool_)
            table[tuple(zip(*self._pool.resident[name], strict=True))] = True
        return table

    def forget(self, place: Place) -> None:
        """The device has failed: nothing is on its next life."""
        for name in self._names.pop(place, ()):
            self._drop(name, place)

    def _drop(self, name: str, place: Place) -> None:
        self._left[name].pop(place, None)
        self._pool.resident[name].discard(place)
        if name in self._tables:
            self._tables[name][place] = False


class DrawnPlacer:
    """Places like a Placer whose policy minds weights, at the price of one whose policy does not.

    A Placer scores all devices with the weights, and keeps scores of the function where these are many; where loads end
    as fast as in a simulation, that is mostly scoring anew.  So the best of all is asked for without weights, and the
    policy scores that one and a few of those that have them (at most `MOST_PLACES`).
    """

    def __init__(self, placer: Placer, residency: Resident) -> None:
        self._placer = placer
        self._residency = residency
        self._needs: dict[object, Need] = {}  # by shape

    def place(self, request: Request) -> Placement | Refusal:
        pool, policy = self._placer.pool, self._placer.policy
        if not isinstance(policy, Dgsf) or policy.decides(request) or not request.weights:
            return self._placer.place(request)
        found = self._placer.place(replace(request, weights=""))
        share = 0 if request.devices else request.share or 0
        if not 0 < share < WHOLE or isinstance(found, Refusal):
            return found
        room = self._residency.with_room(request.weights, share)
        if not room:
            return found
        need = self._need(request).instead(request, room)
        rows = np.array(sorted({found.row, *(row for row, _ in room)}))
        rows = rows[policy.able(pool, need, rows)]
        values, columns = policy.score(pool, need, rows)
        best = int((values - RANK_STEP * need.rank[rows]).argmax())
        assert columns is not None
        row = int(rows[best])
        return placed(pool, row, (int(columns[best]),), int(need.share[row]))

    def _need(self, request: Request) -> Need:
        need = self._needs.get(request.shape)
        if need is None:
            need = self._needs[request.shape] = Need.of(request, self._placer.pool)
        return need.instead(request)
