"""How much of what comes goes again: 0 where nothing has ended, nearly 1 where most have.

A row that is broken into is whole again when all that is there has ended.  To care when that will be is worth
something only where things end, and a pool that fills up for good is packed better without.
"""

from __future__ import annotations

from dgsf.core.placement.model import Request
from dgsf.core.placement.pool import Pool
from dgsf.core.placement.workload import FIRST, GROWTH

STEPS = 4  # it is told in so many: every change makes kept scores old, and a few that end are no turnover


class Turnover:
    """Counts who came, and looks now and then at how many are there."""

    def __init__(self) -> None:
        self.part = 0.0
        self._came = 0
        self._next = float(FIRST)

    def comes(self, request: Request, pool: Pool) -> bool:
        """Count a request that found a place; True when the part has changed."""
        self._came += request.share != 0 or request.devices > 0
        if self._came < self._next:
            return False
        self._next = self._came * GROWTH
        gone = 1.0 - float(pool.classes.sum()) / self._came
        before, self.part = self.part, round(max(0.0, gone) * STEPS) / STEPS
        return self.part != before
