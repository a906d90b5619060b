"""How much of a row's room the popular shapes cannot use, now and after each way to place a request (FGD, ATC'23).

For a shape that cannot run in a row, all its room is waste; for one that can, the room of devices too full for it.
The measure is the mean over the popular shapes, in thousandths of a device.  Tables by room and sums kept per row
make it a few lookups.  Large pools are measured in blocks whose tables stay in the processor's caches: in one piece,
the time grows faster than the pool.  Sums are of whole numbers: alike rows measure alike, wherever they are in a block.
"""

from __future__ import annotations

import numpy as np

from dgsf.core.placement.model import WHOLE
from dgsf.core.placement.need import Need
from dgsf.core.placement.pool import Bools, Floats, Ints, Pool
from dgsf.core.placement.workload import SLOT, Popular

BLOCK = 1024  # rows, or ways to place a request, that are measured together


class Fragmentation:
    """The measure for one set of popular shapes over one pool."""

    def __init__(self, popular: Popular, pool: Pool) -> None:
        which, shares, typed = _sized(popular, pool)
        self._count, self._all = popular.count[which], float(popular.count.sum())
        self._cpu = popular.cpu[which]
        self._devices = popular.devices[which]
        sizes, self._size_of = np.unique(np.array(shares, dtype=np.int64), return_inverse=True)
        room = np.arange(WHOLE + 1)[:, None]
        self._useful: Floats = np.where(room >= sizes, room, 0).astype(np.float64)  # room that a size can use
        self._enough: Ints = (room >= sizes).astype(np.int64)
        rows = len(pool.nodes)
        kinds, self._kind = _kinds(pool)
        self._typed: Bools = np.array(typed, dtype=np.bool_).reshape(len(typed), rows)[:, kinds].T.copy()
        self._seen: Ints = np.full(rows, -1, dtype=np.int64)
        self._row_useful: Floats = np.zeros((rows, len(sizes)))
        self._row_enough: Ints = np.zeros((rows, len(sizes)), dtype=np.int64)
        self._row_waste: Floats = np.zeros(rows)

    def sought(self) -> Floats:
        """For each row the part of requests for devices that may be placed in it, by its type."""
        sought: Floats = self._typed @ self._count / self._all
        return sought[self._kind]

    def fall(self, pool: Pool, need: Need, rows: Ints, columns: Ints | None) -> Floats:
        """By how much the waste of each row falls when the request takes its whole devices, or this column."""
        self._follow(pool, rows)
        if len(rows) <= BLOCK:
            return self._fall(pool, need, rows, columns)
        fallen: Floats = np.empty(len(rows))
        for start in range(0, len(rows), BLOCK):
            block = slice(start, start + BLOCK)
            fallen[block] = self._fall(pool, need, rows[block], None if columns is None else columns[block])
        return fallen

    def _fall(self, pool: Pool, need: Need, rows: Ints, columns: Ints | None) -> Floats:
        total = pool.room[rows].sum(axis=1) - need.share[rows] * need.devices
        useful, enough = self._row_useful[rows], self._row_enough[rows]
        if columns is None:
            useful -= need.devices * self._useful[WHOLE]
            enough -= need.devices * self._enough[WHOLE]
        else:
            before = pool.room[rows, columns]
            after = before - need.share[rows]
            useful += self._useful[after] - self._useful[before]
            enough += self._enough[after] - self._enough[before]
        waste = self._waste(total, useful, enough, pool.cpu[rows] - need.request.cpu_milli, rows)
        fallen: Floats = self._row_waste[rows] - waste
        return fallen

    def _follow(self, pool: Pool, rows: Ints) -> None:
        """Bring the sums of rows that have changed up to date."""
        stale = rows[self._seen[rows] != pool.changes[rows]]
        if not len(stale):
            return
        room = pool.room[stale]
        useful, enough = self._useful[room].sum(axis=1), self._enough[room].sum(axis=1)
        self._row_useful[stale], self._row_enough[stale] = useful, enough
        self._row_waste[stale] = self._waste(room.sum(axis=1), useful, enough, pool.cpu[stale], stale)
        self._seen[stale] = pool.changes[stale]

    def _waste(self, total: Ints, useful: Floats, enough: Ints, cpu: Ints, rows: Ints) -> Floats:
        runs = (enough[:, self._size_of] >= self._devices) & (cpu[:, None] >= self._cpu) & self._typed[self._kind[rows]]
        waste: Floats = total - (useful[:, self._size_of] * runs) @ self._count / self._all
        return waste


def _kinds(pool: Pool) -> tuple[Ints, Ints]:
    """A row of each type and size of slots, and for each row which of them it is like."""
    _, first, kind = np.unique(np.stack([pool.model, pool.slot]), axis=1, return_index=True, return_inverse=True)
    return first, kind.reshape(-1)


def _sized(popular: Popular, pool: Pool) -> tuple[list[int], list[int], list[Bools]]:
    """The shapes that take of a device: which of the popular, their share, and the rows where that holds.

    A slot is another share where devices have other numbers of slots, so it is a shape for each of these.
    """
    which: list[int] = []
    shares: list[int] = []
    typed: list[Bools] = []
    for place, (types, share) in enumerate(zip(popular.types, popular.share.tolist(), strict=True)):
        if not share:
            continue
        accepts = pool.rank(types) >= 0
        for size in np.unique(pool.slot[accepts]).tolist() if share == SLOT else (share,):
            which.append(place)
            shares.append(size)
            typed.append(accepts & (pool.slot == size) if share == SLOT else accepts)
    return which, shares, typed
