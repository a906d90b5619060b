"""Fragmentation gradient descent (FGD, ATC'23): place where the room that popular shapes can use shrinks least."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dgsf.core.placement.fragmentation import Fragmentation
from dgsf.core.placement.model import Request
from dgsf.core.placement.need import Need
from dgsf.core.placement.policy import Policy
from dgsf.core.placement.pool import Floats, Ints, Pool
from dgsf.core.placement.workload import Popular, Workload

SCALE = 1000.0


class Fgd(Policy):
    """Scores by the fall of fragmentation, as whole numbers from 0 to 100."""

    name: ClassVar[str] = "fgd"
    names_device: ClassVar[bool] = True
    by_looks: ClassVar[bool] = True

    def __init__(self, workload: Workload | None = None) -> None:
        """Without a workload, popularity is learned from the requests that arrive."""
        self._learning = workload is None
        self.workload = Workload() if workload is None else workload
        self._popular: Popular | None = None
        self._measure: Fragmentation | None = None
        self.epoch = 0

    def look_at(self, pool: Pool) -> None:
        self._measure = None

    def observe(self, request: Request, pool: Pool) -> None:
        due = self._learning and self.workload.add(request)
        if due or self._popular is None:
            self._popular = self.workload.popular()
            self._measure = None
        if self._measure is None:
            self.measure_by(self._popular, pool)
            self.epoch += 1

    def measure_by(self, popular: Popular, pool: Pool) -> None:
        """Take over what is popular now."""
        self._measure = Fragmentation(popular, pool)

    def score(self, pool: Pool, need: Need, rows: Ints) -> tuple[Floats, Ints | None]:
        assert self._measure is not None
        if need.whole or not need.devices:
            return self._graded(self._measure.fall(pool, need, rows, None)), None
        which, columns = np.nonzero(need.columns(pool, rows))
        values = self._graded(self._measure.fall(pool, need, rows[which], columns))
        return best_columns(len(rows), which, columns, values)

    @staticmethod
    def _graded(fallen: Floats) -> Floats:
        return np.trunc(100.0 / (1.0 + np.exp(-fallen / SCALE)))


def best_columns(rows: int, which: Ints, columns: Ints, values: Floats) -> tuple[Floats, Ints]:
    """The best value of each row and the first column that has it; the pairs come in order of rows."""
    starts = np.searchsorted(which, np.arange(rows))
    best = np.maximum.reduceat(values, starts)
    hits = np.flatnonzero(values == best[which])
    first = hits[np.searchsorted(which[hits], np.arange(rows))]
    return best, columns[first]
