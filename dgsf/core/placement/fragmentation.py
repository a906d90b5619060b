"""How much of a row's room the popular shapes cannot use, now and after each way to place a request (FGD, ATC'23).

For a shape that cannot run in a row, all its room is waste; for one that can, the room of devices too full for it.
The measure is the mean over the popular shapes, in thousandths of a device.  Tables by room make it a few lookups.
"""

from __future__ import annotations

import numpy as np

from dgsf.core.placement.need import Need
from dgsf.core.placement.pool import Bools, Floats, Ints, Pool
from dgsf.core.placement.model import WHOLE
from dgsf.core.placement.workload import Popular


class Fragmentation:
    """The measure for one set of popular shapes."""

    def __init__(self, popular: Popular, pool: Pool) -> None:
        with_device = popular.share > 0
        self._weight = popular.weight[with_device]
        self._cpu = popular.cpu[with_device]
        self._devices = popular.devices[with_device]
        sizes, self._size_of = np.unique(popular.share[with_device], return_inverse=True)
        room = np.arange(WHOLE + 1)[:, None]
        self._useful: Floats = np.where(room >= sizes, room, 0).astype(np.float64)  # room that a size can use
        self._enough: Ints = (room >= sizes).astype(np.int64)
        ranks = [pool.rank(types) >= 0 for types, has in zip(popular.types, with_device, strict=True) if has]
        self._typed: Bools = np.array(ranks, dtype=np.bool_).reshape(len(ranks), len(pool.nodes)).T

    def now(self, pool: Pool, rows: Ints) -> Floats:
        """The waste of each row as it is."""
        room = pool.room[rows]
        useful, enough = self._useful[room].sum(axis=1), self._enough[room].sum(axis=1)
        return self._waste(room.sum(axis=1), useful, enough, pool.cpu[rows], self._typed[rows])

    def after(self, pool: Pool, need: Need, rows: Ints) -> Floats:
        """The waste of each row after the request; for a share of one device, (rows, columns)."""
        room = pool.room[rows]
        useful, enough = self._useful[room], self._enough[room]
        cpu = pool.cpu[rows] - need.request.cpu_milli
        total = room.sum(axis=1)
        if need.devices == 0 or need.whole:
            taken = need.devices if need.whole else 0
            row_useful = useful.sum(axis=1) - taken * self._useful[WHOLE]
            row_enough = enough.sum(axis=1) - taken * self._enough[WHOLE]
            return self._waste(total - taken * WHOLE, row_useful, row_enough, cpu, self._typed[rows])
        rest = np.maximum(room - need.share[rows, None], 0)
        each_useful = useful.sum(axis=1)[:, None] - useful + self._useful[rest]
        each_enough = enough.sum(axis=1)[:, None] - enough + self._enough[rest]
        left = (total - need.share[rows])[:, None]
        return self._waste(left, each_useful, each_enough, cpu[:, None], self._typed[rows][:, None])

    def _waste(self, total: Ints, useful: Floats, enough: Ints, cpu: Ints, typed: Bools) -> Floats:
        runs = (enough[..., self._size_of] >= self._devices) & (cpu[..., None] >= self._cpu) & typed
        waste: Floats = total - ((useful[..., self._size_of] * runs) @ self._weight)
        return waste
