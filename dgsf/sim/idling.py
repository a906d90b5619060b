"""The idle instances of a simulation: which was used longest ago, what they hold, and which to give up for another.

Something is given up only where that makes the request fit, and no more than it takes: the place is that of the least
recently used instance among those whose going can help.  One look over arrays says which places can be made to fit at
all; one place is then gone through exactly, slices of tenants included.  It decides; closing is the engine's.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from dgsf.core.placement import Request
from dgsf.core.placement.model import NO_SLICE, WHOLE
from dgsf.core.placement.need import Need
from dgsf.core.placement.pool import Bools, Ints, Pool
from dgsf.sim.instance import Instance

FEW_ROWS = 64  # that can be made to fit: their instances are looked at, not all in turn
Wanted = Callable[[Iterable[Instance], float], dict[Instance, float]]  # how soon each is used, by what is expected now


class Idling:
    """Idle instances and what would be free without them."""

    def __init__(self, pool: Pool) -> None:
        self.unused: OrderedDict[Instance, None] = OrderedDict()  # least recently used first
        self._pool = pool
        rows, self._wide = pool.ids.shape
        self._on: list[dict[Instance, None]] = [{} for _ in range(rows)]  # row: its instances, busy ones too
        self.wanted: Wanted | None = None  # the least wanted go first
        self._needs: dict[object, Need] = {}  # by shape
        self._rested = 0
        # what idle instances hold, by place and by row: plain arrays, because every call changes them
        self._share, self.share = _counts(rows * self._wide, (rows, self._wide))
        self._memory, self.memory = _counts(rows * self._wide, (rows, self._wide))
        self._cpu, self.cpu = _counts(rows, (rows,))
        self._host, self.host = _counts(rows, (rows,))

    # --- what happens -------------------------------------------------------------------------
    def opened(self, item: Instance) -> None:
        self._on[item.row][item] = None

    def closed(self, item: Instance) -> None:
        self._on[item.row].pop(item, None)

    def rest(self, item: Instance) -> None:
        """It has nothing to do from now on."""
        self._rested += 1
        item.rested = self._rested
        self.unused[item] = None
        self._hold(item, 1)

    def leave(self, item: Instance) -> None:
        """It is idle no longer: it is used, or goes."""
        del self.unused[item]
        self._hold(item, -1)

    def _hold(self, item: Instance, sign: int) -> None:
        first, request, placement = item.row * self._wide, item.request, item.placement
        share = placement.share if placement.owned_slice == NO_SLICE else WHOLE  # at most: what a slice frees
        for column in placement.columns:
            self._share[first + column] += sign * share
            if request.memory_bytes:
                self._memory[first + column] += sign * request.memory_bytes
        if request.cpu_milli or request.host_memory:
            for row in self._pool.siblings[item.row]:
                self._cpu[row] += sign * request.cpu_milli
                self._host[row] += sign * request.host_memory

    # --- whom to give up ----------------------------------------------------------------------
    def to_give_up(self, request: Request, share: int, now: float) -> list[Instance]:
        """The idle instances without which the request, that has no room now, fits; none if that cannot be had."""
        if not self.unused:
            return []
        need = self._need(request)
        rows, columns = self._possible(need, share)
        if not rows.any():
            return []
        able = rows.tolist()
        tried: set[int] = set()
        order = self._order(now)
        for item in self._near(np.flatnonzero(rows).tolist(), order):
            for row in self._pool.siblings[item.row]:
                if able[row] and row not in tried and _may_help(item, row, columns, request):
                    tried.add(row)
                    if gone := self._enough(row, need, share, order):
                        return gone
        return []

    def _near(self, rows: list[int], order: dict[Instance, None]) -> Iterable[Instance]:
        """All of that order that can matter to these rows, and perhaps others."""
        if order is not self.unused or len(rows) > FEW_ROWS:
            return order
        nodes = dict.fromkeys(each for row in rows for each in self._pool.siblings[row])
        return self._idle_on(nodes)

    def _idle_on(self, rows: Iterable[int]) -> list[Instance]:
        """The idle instances there, the one that was used longest ago first."""
        idle = [item for row in rows for item in self._on[row] if item in self.unused]
        idle.sort(key=lambda item: item.rested)
        return idle

    def _order(self, now: float) -> dict[Instance, None]:
        """The order in which they go."""
        if self.wanted is None:
            return self.unused
        rates = self.wanted(self.everything, now)
        return dict.fromkeys(sorted(self.unused, key=lambda item: rates.get(item, 0.0)))  # equals stay in order

    @property
    def everything(self) -> list[Instance]:
        """All instances that hold a device, busy ones too."""
        return [item for items in self._on for item in items if item.devices]

    def _need(self, request: Request) -> Need:
        need = self._needs.get(request.shape)
        if need is None:
            need = self._needs[request.shape] = Need.of(request, self._pool)
        return need.instead(request)

    def _possible(self, need: Need, share: int) -> tuple[Bools, Bools]:
        """Rows and places that could hold it if nothing idle were there."""
        pool, request = self._pool, need.request
        rows = (pool.cpu + self.cpu >= request.cpu_milli) & (pool.host_memory + self.host >= request.host_memory)
        rows &= need.rank >= 0
        columns = pool.usable & (pool.left + self.share >= share)
        if request.memory_bytes:
            columns &= pool.memory + self.memory >= request.memory_bytes
        if need.devices:
            rows &= columns.any(axis=1) if need.devices == 1 else columns.sum(axis=1) >= need.devices
        return rows, columns

    def _enough(self, row: int, need: Need, share: int, order: dict[Instance, None]) -> list[Instance]:
        """Those of one node, in this order, until it fits; then without those that need not go."""
        ledger = _Ledger(self._pool, row, need, share)
        idle = self._idle_on(self._pool.siblings[row])
        if order is not self.unused:
            here = set(idle)
            idle = [item for item in order if item in here]
        gone: list[Instance] = []
        for item in idle:
            gone.append(item)
            ledger.shift(item, 1)
            if ledger.fits():
                return _needed(gone, ledger)
        return []


def _needed(gone: list[Instance], ledger: _Ledger) -> list[Instance]:
    kept = []
    for item in reversed(gone):
        ledger.shift(item, -1)
        if not ledger.fits():
            ledger.shift(item, 1)
            kept.append(item)
    return kept[::-1]


class _Ledger:
    """One row as it would be if some of its instances were gone."""

    def __init__(self, pool: Pool, row: int, need: Need, share: int) -> None:
        self._row = row
        self._need = need
        self._share = share
        self._usable = np.flatnonzero(pool.usable[row]).tolist()
        self._left = pool.left[row].tolist()
        self._memory = pool.memory[row].tolist()
        self._cpu, self._host = int(pool.cpu[row]), int(pool.host_memory[row])
        self._slices = {
            owned.number: (column, replace(owned))
            for column in range(len(self._left))
            for owned in pool.slices.get((row, column), ())
        }

    def shift(self, item: Instance, sign: int) -> None:
        """It is gone (1), or there after all (-1)."""
        request, placement = item.request, item.placement
        self._cpu += sign * request.cpu_milli
        self._host += sign * request.host_memory
        for column in placement.columns if item.row == self._row else ():
            self._memory[column] += sign * request.memory_bytes
            self._left[column] += sign * self._freed(item, sign)

    def _freed(self, item: Instance, sign: int) -> int:
        """A slice is freed by its last task, and taken again by the first."""
        if item.placement.owned_slice == NO_SLICE:
            return item.placement.share
        _, mine = self._slices[item.placement.owned_slice]
        before = mine.used
        mine.used -= sign * (item.request.share or 0)
        return mine.share if 0 in (before, mine.used) else 0

    def fits(self) -> bool:
        request = self._need.request
        if self._cpu < request.cpu_milli or self._host < request.host_memory:
            return False
        able = [column for column in self._usable if self._memory[column] >= request.memory_bytes]
        room = sum(self._left[column] >= self._share for column in able)
        return room >= self._need.devices or (bool(self._slices) and not self._need.whole and self._joins(able))

    def _joins(self, able: list[int]) -> bool:
        """Whether a slice of the same tenant has room for it."""
        request = self._need.request
        return any(
            mine.used and mine.tenant == request.tenant and mine.share - mine.used >= (request.share or 0)
            for column, mine in self._slices.values()
            if column in able
        )


def _may_help(item: Instance, row: int, columns: Bools, request: Request) -> bool:
    """Whether the request may gain from its going: it is at a place that can be made to fit, or holds processors."""
    if item.row == row and any(columns[row, column] for column in item.placement.columns):
        return True
    held = item.request
    return bool((request.cpu_milli and held.cpu_milli) or (request.host_memory and held.host_memory))


def _counts(size: int, shape: tuple[int, ...]) -> tuple[array[int], Ints]:
    """Zeros, as an array that is fast to change one by one, and the same memory for numpy."""
    numbers = array("q", bytes(8 * max(1, size)))
    return numbers, np.frombuffer(numbers, dtype=np.int64)[:size].reshape(shape)
