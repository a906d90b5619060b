"""Heterogeneity- and cost-aware placement: each function's own speed on each device type decides (as Gavel does).

Speeds are a table of work per second by function and device type; a pair that is not in it falls back to the device's
general speed.  A price per type makes a fast but dear device worth it only where the function gains from it, or where
a slower one would miss the deadline.  Expected durations are those on the fastest type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from dgsf.core.placement.model import Request
from dgsf.core.placement.need import Need
from dgsf.core.placement.policy import Tightest
from dgsf.core.placement.pool import Floats, Ints, Pool

TOO_LATE = 1e6


class Gavel(Tightest):
    """The device type on which this function runs best for its price; among equals the fullest row."""

    name: ClassVar[str] = "gavel"

    def __init__(
        self,
        speeds: Mapping[tuple[str, str], float] | None = None,
        prices: Mapping[str, float] | None = None,
        cost_weight: float = 0.0,
    ) -> None:
        """`cost_weight` 0 looks at speed alone, 1 at work per money alone."""
        self._speeds = dict(speeds or {})
        self._prices = dict(prices or {})
        self._cost_weight = cost_weight

    def cache_key(self, request: Request) -> object:
        return (request.shape, request.function, request.due_s / (request.deadline_s or math.inf))

    def score(self, pool: Pool, need: Need, rows: Ints) -> tuple[Floats, Ints | None]:
        models = [self._worth(need.request, name) for name, _ in pool.names]
        of_model = np.array([np.nan if worth is None else worth for worth in models])[pool.model[rows]]
        worth: Floats = np.where(np.isnan(of_model), pool.speed[rows], of_model)
        full = pool.room[rows].sum(axis=1) / (pool.room.shape[1] * 1000 + 1)
        return worth * (1.0 - 1e-6 * full), None

    def speed(self, function: str, type_: str) -> float | None:
        """Work per second, if it is known."""
        return self._speeds.get((function, type_))

    def suits(self, function: str, free: Sequence[str], everything: Sequence[str]) -> float:
        """How good the best free type is for the function, as a part of the best type there is."""
        speeds = [self._speeds.get((function, type_), 0.0) for type_ in free]
        best = max(self._speeds.get((function, type_), 0.0) for type_ in everything)
        return max(speeds, default=0.0) / best if best else 0.0

    def _worth(self, request: Request, type_: str) -> float | None:
        speed = self.speed(request.function, type_)
        if speed is None:
            return None
        worth = speed / float(self._prices.get(type_, 1.0) ** self._cost_weight)
        return worth - TOO_LATE if self._late(request, speed) else worth

    def _late(self, request: Request, speed: float) -> bool:
        if request.deadline_s is None or not request.due_s:
            return False
        best = max(known for (function, _), known in self._speeds.items() if function == request.function)
        return request.due_s * best > request.deadline_s * speed
