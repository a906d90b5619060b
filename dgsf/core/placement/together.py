"""Room for several devices of one node at once: what is lost of it where a request goes.

Shapes that ask for several whole devices are few and large.  They are too rare to be popular by how often they come,
but a node that could hold one is hard to have back: all that is there must end first.  So each such shape counts by the
part of all devices asked for that it asks for, and a row that can no longer hold it has lost its devices.  A row where
tasks are is whole again when the last of them ends, and one that ends later still puts that off.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from dgsf.core.placement.model import PLENTY, WHOLE
from dgsf.core.placement.need import Need
from dgsf.core.placement.pool import Bools, Floats, Ints, Pool
from dgsf.core.placement.workload import SLOT, Popular, Shape

WIDE = 8 * WHOLE  # a row is worth no more than so many devices: the types of devices weigh more than this
MOST = 32  # shapes, those that ask for most devices in all


class Together:
    """What several devices at once are worth in each row, for one set of learned shapes."""

    def __init__(self, popular: Popular, pool: Pool) -> None:
        several = sorted((each for each in popular.asked if each[0][3] > 1), key=_devices)[-MOST:]
        total = sum(_devices(each) * _part(each[0]) for each in popular.asked)
        shapes = [shape for shape, _ in several]
        self._devices: Ints = np.array([shape[3] for shape in shapes], dtype=np.int64)
        self._cpu: Ints = np.array([shape[1] for shape in shapes], dtype=np.int64)
        worth = [WHOLE * shape[3] * _devices((shape, count)) / total for shape, count in several]
        self._worth: Floats = np.rint(np.array(worth, dtype=np.float64))  # whole numbers: sums are exact
        typed = [pool.rank(shape[0]) >= 0 for shape in shapes]
        self._typed: Bools = np.array(typed, dtype=np.bool_).reshape(len(shapes), len(pool.nodes)).T.copy()
        self._all_cpu: Ints = np.where(pool.cpu_size < PLENTY, pool.cpu_size, 0)  # 0: the node does not say
        whole = (self._runs(pool.members, pool.cpu_size) & self._typed) @ self._worth
        self._when_whole: Floats = np.minimum(whole, WIDE)

    def __bool__(self) -> bool:
        """Whether anybody asks for several."""
        return len(self._worth) > 0

    def lost(self, pool: Pool, need: Need, rows: Ints, opened: Ints | int) -> Floats:
        """Thousandths of devices; `opened`: how many of its idle devices the request takes in each of these rows."""
        idle, cpu = (pool.room[rows] == WHOLE).sum(axis=1), pool.cpu[rows]
        before, after = self._runs(idle, cpu), self._runs(idle - opened, cpu - need.request.cpu_milli)
        lost: Floats = (before & ~after & self._typed[rows]) @ self._worth
        return lost

    def lost_by_one(self, pool: Pool, need: Need, rows: Ints, opens: Bools) -> Floats:
        """The same for a share of one device of each of these rows, and whether it is an idle one: asked by row."""
        able = np.zeros(len(pool.nodes), dtype=np.bool_)
        able[rows] = True
        some = np.flatnonzero(able & (self._when_whole > 0))
        by_row = np.zeros((2, len(able)))
        for opened in (0, 1):
            by_row[opened, some] = self.lost(pool, need, some, opened)
        lost: Floats = by_row[opens.astype(np.int64), rows]
        return lost

    def later(self, pool: Pool, rows: Ints | slice = slice(None)) -> Floats:
        """What each row is worth when it is whole, times by how much later that is with one more task, in durations.

        Of n devices in use whose ends nobody knows, one more puts off the last end by 1 / (n + 1).  So tasks go to
        where many are, and rows with few become whole.
        """
        used = np.einsum("ij->i", (pool.tasks[rows] > 0).astype(np.int64))
        used = np.maximum(used, pool.cpu[rows] < self._all_cpu[rows])  # also who takes no device is there
        later: Floats = self._when_whole[rows] / (used + 1.0)
        return later

    def later_by(self, pool: Pool, duration: float) -> Floats:
        """The same for a task of known duration: nothing is put off where others stay longer.

        Where no end is known or all are overdue, it is guessed as above.
        """
        left = np.maximum(reduce(np.maximum, pool.until.T, np.zeros(len(pool.nodes))) - pool.now, 0.0)
        known = self._when_whole * (np.maximum(duration - left, 0.0) / duration)
        later: Floats = np.where(left > 0.0, known, self.later(pool))
        return later

    def _runs(self, idle: Ints, cpu: Ints) -> Bools:
        runs: Bools = (idle[:, None] >= self._devices) & (cpu[:, None] >= self._cpu)
        return runs


def _devices(asked: tuple[Shape, int]) -> int:
    """How many devices a shape asked for in all."""
    shape, count = asked
    return shape[3] * count


def _part(shape: Shape) -> float:
    """The part that it takes of each of its devices; a slot may be any, and counts as a whole one."""
    return 1.0 if shape[2] == SLOT else shape[2] / WHOLE
