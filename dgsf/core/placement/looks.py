"""Numbers for what rows of a pool look like, so that of many rows that look alike only one has to be scored.

A look is all that a row's score may depend on: what its devices are, and what is left of them and of their node.  A
large pool has many nodes of few makes, most of them idle or as full as others, so it has fewer looks than rows the
larger it is.  Looks are numbered when somebody asks, and only those of rows that have changed since.
"""

from __future__ import annotations

import numpy as np

from dgsf.core.placement.pool import Ints, Pool

FORGOTTEN = 4  # times as many looks as rows are remembered at most


class Looks:
    """The looks of one pool's rows."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._make = _makes(pool)
        self._numbers: dict[bytes, int] = {}
        self._look: Ints = np.zeros(len(pool.nodes), dtype=np.int64)
        self._seen: Ints = np.full(len(pool.nodes), -1, dtype=np.int64)

    def one_of_each(self, rows: Ints) -> tuple[Ints, Ints]:
        """Rows that all look different, and for each of the given rows the one that it looks like."""
        self._follow(rows)
        looks = self._look[rows]
        chosen: Ints = np.full(len(self._numbers), -1, dtype=np.int64)
        chosen[looks] = rows
        return chosen[chosen >= 0], chosen[looks]

    def _follow(self, rows: Ints) -> None:
        """Number the looks of rows that have changed."""
        if len(self._numbers) > FORGOTTEN * len(self._seen):
            self._numbers.clear()
            self._seen.fill(-1)
        changed = rows[self._seen[rows] != self._pool.changes[rows]]
        if len(changed):
            numbers = self._numbers
            self._look[changed] = [numbers.setdefault(look, len(numbers)) for look in self._described(changed)]
            self._seen[changed] = self._pool.changes[changed]

    def _described(self, rows: Ints) -> list[bytes]:
        pool = self._pool
        alone = (self._make[rows], pool.cpu[rows], pool.host_memory[rows])
        table = np.column_stack([*alone, pool.room[rows], pool.memory[rows], pool.tasks[rows]])
        looks, size = table.tobytes(), table.itemsize * table.shape[1]
        return [looks[at : at + size] for at in range(0, len(looks), size)]


def _makes(pool: Pool) -> Ints:
    """A number for each row's type, size of slots, speed, price, devices and processors."""
    columns = (pool.model, pool.slot, pool.speed, pool.price, pool.members, pool.cpu_size)
    _, make = np.unique(np.stack([column.astype(np.float64) for column in columns]), axis=1, return_inverse=True)
    return make.reshape(-1).astype(np.int64)
