"""Ours: seven terms for where a share or whole devices go; where the duration is known, GPU hours and what others lose.

The terms, all in thousandths of a device: how much less of the row the popular shapes can use (FGD's gradient), how
many devices lose the processors they need (stranded), how many can no longer be had together by those who ask for
several, by how much the price of the shared device's room falls, how much longer the device stays in use (FGD alone
would rather open an idle one), how much later the row is whole again for those who ask for several, if things end at
all, and how full the row is left, as a tie-break.  Weights that a request needs draw it to where they are.  Before all
that, types that differ in speed or price are weighed (`merit`); the terms decide among equals.
"""

from __future__ import annotations

from functools import reduce
from random import Random
from typing import ClassVar

import numpy as np

from dgsf.core.placement.classic import LARGE_CPU, LARGE_GPU, asked
from dgsf.core.placement.fgd import Fgd, best_columns
from dgsf.core.placement.fragmentation import Fragmentation
from dgsf.core.placement.hours import (
    Lasting,
    Typical,
    hours_cost,
    sought_cost,
    stranded_cost,
    together_cost,
    whole_again_cost,
)
from dgsf.core.placement.merit import Levels, Merit
from dgsf.core.placement.model import WHOLE, Placement, Request, Whose
from dgsf.core.placement.need import RANK_STEP, Need
from dgsf.core.placement.policy import placed
from dgsf.core.placement.pool import Floats, Ints, Pool
from dgsf.core.placement.prices import room_prices
from dgsf.core.placement.speeds import Speeds
from dgsf.core.placement.together import Together
from dgsf.core.placement.turnover import Turnover
from dgsf.core.placement.workload import Popular, Workload

GRADIENT = 0.2
FIT = 0.1
STRANDED = 2.0
TOGETHER = 0.4
WHOLE_AGAIN = 16.0
PRICE = 4.0
LONGER = 150.0
MEMORY_FIT = 0.01  # among equals, the device with the least memory left,
LARGE_MEMORY = 80 * 2**30  # measured by this, so that what is left elsewhere changes no score of a device
LOCALITY = 5.0 * WHOLE
MERIT_STEP = 1e6
HOUR = 3600.0


def longer_in_use(tasks: Ints) -> Floats:
    """By how much one more task lengthens the use of devices that hold so many, in durations of a task.

    Of n tasks whose ends nobody knows, the last is expected to end after 1 + 1/2 + ... + 1/n durations of one.
    """
    return 1.0 / (np.maximum(tasks, 0) + 1.0)


class Dgsf(Fgd):
    """The default."""

    name: ClassVar[str] = "dgsf"
    drawn: ClassVar[bool] = True

    def __init__(self, workload: Workload | None = None) -> None:
        super().__init__(workload)
        self.use(Speeds())
        self._levels: Levels | None = None
        self._kappa: Floats = np.zeros(0)
        self._prices: Floats = np.zeros((0, WHOLE + 1))
        self._sized: Ints = np.zeros(0, dtype=np.int64)
        self._sought: Floats | None = None
        self._together: Together | None = None
        self._typical = Typical()
        self._turnover = Turnover()

    def use(self, speeds: Speeds) -> None:
        self._merit = Merit(speeds, rank_levels=round(RANK_STEP / MERIT_STEP))

    def ran(self, whose: Whose, type_: str, seconds: float) -> None:
        self._merit.speeds.saw(whose, type_, seconds)

    def observe(self, request: Request, pool: Pool) -> None:
        super().observe(request, pool)
        if self.decides(request):
            self._typical.saw(request.duration_s)
        self._levels = self._merit.levels(request, pool)

    def chose(self, request: Request, pool: Pool) -> None:
        if self._turnover.comes(request, pool):
            self.epoch += 1

    def measure_by(self, popular: Popular, pool: Pool) -> None:
        self._measure = measure = Fragmentation(popular, pool)
        self._together = Together(popular, pool) or None
        sought = measure.sought()
        self._sought = sought if (sought != sought[:1]).any() else None  # alike for all rows, it says nothing
        sizes, self._sized = np.unique(pool.slot, return_inverse=True)  # what is popular depends on what a slot is
        self._kappa = np.array([popular.kappa(size) for size in sizes.tolist()])[self._sized]
        self._prices = np.array([WHOLE * room_prices(popular.shared(size)) for size in sizes.tolist()])

    def cache_key(self, request: Request) -> object:
        return request.shape if self._levels is None else (request.shape, self._levels)

    def decides(self, request: Request) -> bool:
        return request.duration_s > 0 and request.devices == 0 and request.share not in (0, WHOLE)

    def looks_at_ends(self, request: Request) -> bool:
        return request.duration_s > 0

    def decide(self, pool: Pool, need: Need, random: Random) -> Placement | None:
        """The device where the task costs the fewest GPU hours, and others the least of what they will need."""
        rest = pool.room - need.share[:, None]
        able = (rest >= 0) & (pool.memory >= need.request.memory_bytes) & need.nodes(pool)[:, None]
        places = np.flatnonzero(able)  # row after row; one index is taken much faster than two
        if not len(places):
            return None
        idle = pool.tasks.ravel()[places] == 0
        until = pool.until.ravel()[places]
        lasting = Lasting(need.request.duration_s, self._typical.seconds)
        cost = hours_cost(until, rest.ravel()[places], idle, pool.now, lasting)
        by_row = self._of_type_and_others(pool, need, lasting)
        if by_row is not None:
            cost += np.repeat(by_row, able.shape[1])[places]
        if self._together is not None:
            whole = pool.room.ravel()[places] == WHOLE
            lost = self._together.lost_by_one(pool, need, places // able.shape[1], whole)
            cost += together_cost(lost, lasting)
        if need.drawn_to:
            drawn = np.array([row * able.shape[1] + column for row, column in need.drawn_to], dtype=np.int64)
            cost[np.searchsorted(places, drawn[able.ravel()[drawn]])] -= LOCALITY
        row, column = divmod(int(places[cost.argmin()]), able.shape[1])
        return placed(pool, row, (column,), int(need.share[row]))

    def _of_type_and_others(self, pool: Pool, need: Need, lasting: Lasting) -> Floats | None:
        """What every device of a row costs by its type and by what others lose there, in seconds; None: all alike."""
        terms: list[Floats] = []
        # types come first however long tasks are: the other terms grow with that
        ahead = 1.0 + max(lasting.task_s, lasting.typical_s) / HOUR
        if need.rank.any():
            terms.append(ahead * RANK_STEP * need.rank.astype(np.float64))
        if self._levels is not None:
            terms.append(ahead * self._worse(pool, np.arange(len(pool.nodes))))
        if self._sought is not None:
            terms.append(sought_cost(need.share, self._sought, lasting))
        if self._kappa.any():
            room = np.einsum("ij->i", pool.room)  # sums short rows three times as fast
            terms.append(stranded_cost(self._stranded(need, slice(None), pool.cpu, room), lasting))
        if self._together is not None and self._turnover.part:
            later = self._turnover.part * self._together.later_by(pool, lasting.task_s)
            terms.append(whole_again_cost(later, lasting))
        return reduce(np.add, terms) if terms else None

    def timed(self, pool: Pool, need: Need, values: Floats) -> Floats:
        """The scores of all rows, put right by the duration, where it is known: they are kept for any."""
        together, part, duration = self._together, self._turnover.part, need.request.duration_s
        if together is None or not part or not duration:
            return values
        earlier: Floats = together.later(pool) - together.later_by(pool, duration)
        return values + WHOLE_AGAIN * part * earlier

    def score(self, pool: Pool, need: Need, rows: Ints) -> tuple[Floats, Ints | None]:
        assert self._measure is not None
        values = self._of_row(pool, need, rows)
        if self._levels is not None:
            values -= self._worse(pool, rows)
        if need.whole or not need.devices:
            if self._together is not None:
                values -= TOGETHER * self._together.lost(pool, need, rows, need.devices)
            return values + GRADIENT * self._measure.fall(pool, need, rows, None), None
        which, columns = np.nonzero(need.columns(pool, rows))
        rows_of = rows[which]
        room = pool.room[rows_of, columns]
        each = values[which] + GRADIENT * self._measure.fall(pool, need, rows_of, columns)
        if self._together is not None:
            each -= TOGETHER * self._together.lost(pool, need, rows_of, (room == WHOLE).astype(np.int64))
        sized = self._sized[rows_of]
        each -= PRICE * (self._prices[sized, room] - self._prices[sized, room - need.share[rows_of]])
        each -= LONGER * longer_in_use(pool.tasks[rows_of, columns])
        memory = pool.memory[rows_of, columns].astype(np.float64)
        each -= MEMORY_FIT * WHOLE * memory / (memory + LARGE_MEMORY)
        if need.drawn_to:
            each += self._drawn(need, rows_of, columns)
        return best_columns(len(rows), which, columns, each)

    def _of_row(self, pool: Pool, need: Need, rows: Ints) -> Floats:
        """Fit and stranded devices: the same for every device of a row."""
        cpu, gpu = pool.cpu[rows], pool.room[rows].sum(axis=1)
        cpu_left, gpu_left = cpu - need.request.cpu_milli, gpu - asked(need, rows)
        full = 1.0 - 0.5 * np.minimum(cpu_left, LARGE_CPU) / LARGE_CPU - 0.5 * gpu_left / LARGE_GPU
        values: Floats = FIT * WHOLE * full
        if self._kappa.any():
            values -= STRANDED * self._stranded(need, rows, cpu, gpu)
        if self._together is not None and self._turnover.part:
            values -= WHOLE_AGAIN * self._turnover.part * self._together.later(pool, rows)
        return values

    def _stranded(self, need: Need, rows: Ints | slice, cpu: Ints, gpu: Ints) -> Floats:
        """By how much more room than before lacks the processors that those who take it ask for."""
        kappa, whole = self._kappa[rows], float(WHOLE)  # plenty of processors times 1000 is no int64
        after = np.maximum(0.0, gpu - asked(need, rows) - whole * (cpu - need.request.cpu_milli) / kappa)
        stranded: Floats = after - np.maximum(0.0, gpu - whole * cpu / kappa)
        return stranded

    def _worse(self, pool: Pool, rows: Ints) -> Floats:
        """What rows lose by their type: more than the terms can make good, less than the order of types unless late."""
        worse: Floats = MERIT_STEP * np.array(self._levels)[self._merit.groups(pool).of_row[rows]]
        return worse

    @staticmethod
    def _drawn(need: Need, rows: Ints, columns: Ints) -> Floats:
        """How much the weights that are already there draw the request to a device."""
        drawn = np.zeros(len(rows))
        for row, column in need.drawn_to:
            drawn[(rows == row) & (columns == column)] = LOCALITY
        return drawn
