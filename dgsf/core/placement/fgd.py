"""Fragmentation gradient descent (FGD, ATC'23): place where the room that popular shapes can use shrinks least."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dgsf.core.placement.fragmentation import Fragmentation
from dgsf.core.placement.model import Request
from dgsf.core.placement.need import Need
from dgsf.core.placement.policy import Policy
from dgsf.core.placement.pool import Floats, Ints, Pool
from dgsf.core.placement.workload import Workload

SCALE = 1000.0


class Fgd(Policy):
    """Scores by the fall of fragmentation, as whole numbers from 0 to 100."""

    name: ClassVar[str] = "fgd"

    def __init__(self, workload: Workload | None = None) -> None:
        """Without a workload, popularity is learned from the requests that arrive."""
        self._learning = workload is None
        self.workload = Workload() if workload is None else workload
        self._measure: Fragmentation | None = None
        self.epoch = 0

    def observe(self, request: Request, pool: Pool) -> None:
        due = self._learning and self.workload.add(request)
        if due or self._measure is None:
            self.refresh(pool)

    def refresh(self, pool: Pool) -> None:
        """Take over what is popular now."""
        self._measure = Fragmentation(self.workload.popular(), pool)
        self.epoch += 1

    def fall(self, pool: Pool, need: Need, rows: Ints) -> Floats:
        """By how much the waste falls in each row, or in each row and column for a share of one device."""
        assert self._measure is not None
        before = self._measure.now(pool, rows)
        after = self._measure.after(pool, need, rows)
        fallen: Floats = (before[:, None] if after.ndim == 2 else before) - after
        return fallen

    def score(self, pool: Pool, need: Need, rows: Ints) -> tuple[Floats, Ints | None]:
        values = np.trunc(100.0 / (1.0 + np.exp(-self.fall(pool, need, rows) / SCALE)))
        if values.ndim == 1:
            return values, None
        values[~need.columns(pool, rows)] = -1.0
        columns = values.argmax(axis=1)
        return np.take_along_axis(values, columns[:, None], axis=1)[:, 0], columns
