"""Heterogeneity- and cost-aware placement: each function's own speed on each device type decides (as Gavel does).

Speeds come from a table, from runs that were seen, or are those that devices declare; prices are theirs, too.  A price
makes a fast but dear device worth it only where the function gains from it, or where a slower one would miss the
deadline.  Expected durations are those on the fastest type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dgsf.core.placement.merit import COST_WEIGHT, Levels, Merit
from dgsf.core.placement.model import Request, Whose
from dgsf.core.placement.need import RANK_STEP, Need
from dgsf.core.placement.policy import Tightest
from dgsf.core.placement.pool import Floats, Ints, Pool
from dgsf.core.placement.speeds import Speeds, Table

FINE = 0.02  # octaves: speeds that differ by 1.4 % are not equal


class Gavel(Tightest):
    """The device type on which this function runs best for its price; among equals the fullest row."""

    name: ClassVar[str] = "gavel"

    def __init__(self, table: Table | None = None, cost_weight: float = COST_WEIGHT) -> None:
        """`cost_weight` 0 looks at speed alone, 1 at work per money alone."""
        self._cost_weight = cost_weight
        self.use(Speeds(table))
        self._levels: Levels | None = None

    def use(self, speeds: Speeds) -> None:
        self.speeds = speeds
        self._merit = Merit(speeds, self._cost_weight, FINE, keeps_scarce=False, rank_levels=round(RANK_STEP))

    def ran(self, whose: Whose, type_: str, seconds: float) -> None:
        self.speeds.saw(whose, type_, seconds)

    def observe(self, request: Request, pool: Pool) -> None:
        self._levels = self._merit.levels(request, pool)

    def cache_key(self, request: Request) -> object:
        return (request.shape, self._levels)

    def score(self, pool: Pool, need: Need, rows: Ints) -> tuple[Floats, Ints | None]:
        full: Floats = -pool.room[rows].sum(axis=1) / (pool.room.shape[1] * 1000 + 1)
        if self._levels is not None:
            full = full - np.array(self._levels)[self._merit.groups(pool).of_row[rows]]
        return full, None

    def suits(self, whose: Whose, free: Sequence[str], everything: Sequence[str]) -> float:
        """How good the best free type is for the function, as a part of the best type there is."""
        speeds = self.speeds.of(whose, everything, np.ones(len(everything)))
        return max((speeds[everything.index(type_)] for type_ in free), default=0.0) / float(speeds.max())
