"""Answers requests from a pool by a policy: filters, scores, picks; the same code in production and in simulations.

Scores are kept per shape of request.  When a shape comes again, only the rows that changed since are scored anew, so
a decision costs little more than one look over the rows.  It decides; booking is the pool's.
"""

from __future__ import annotations

from random import Random

import numpy as np

from dgsf.core.placement.model import Placement, Refusal, Request
from dgsf.core.placement.need import Need
from dgsf.core.placement.policy import Policy
from dgsf.core.placement.pool import Floats, Ints, Pool

NEVER = -np.inf
RANK_STEP = 1e9  # a preferred type wins over any score
LOG_LIMIT = 100_000


class _Scores:
    """The scores of one shape, up to a position in the pool's log of changes."""

    __slots__ = ("columns", "epoch", "need", "seen", "values")

    def __init__(self, need: Need) -> None:
        self.need = need
        self.values: Floats = np.empty(0)
        self.columns: Ints | None = None
        self.seen = -1
        self.epoch = -1


class Placer:
    """Places requests, one at a time."""

    def __init__(self, pool: Pool, policy: Policy, random: Random) -> None:
        self.pool = pool
        self.policy = policy
        self._random = random
        self._scores: dict[object, _Scores] = {}
        self._all = np.arange(len(pool.nodes), dtype=np.int64)

    def place(self, request: Request) -> Placement | Refusal:
        """The best place that has room now, or why there is none.  Nothing is booked."""
        self.policy.observe(request, self.pool)
        scores = self._scored(request)
        row = self.policy.pick(scores.values, self._random) if len(scores.values) else -1
        if row < 0 or scores.values[row] == NEVER:
            return self._refuse(scores.need)
        return self.policy.placement(self.pool, scores.need, row, scores.columns, self._random)

    def _scored(self, request: Request) -> _Scores:
        key = self.policy.cache_key(request)
        scores = self._scores.get(key)
        if scores is None:
            scores = self._scores[key] = _Scores(Need.of(request, self.pool))
        elif scores.need.request is not request:
            scores.need = Need(request, scores.need.rank, scores.need.share, scores.need.devices, scores.need.whole)
        log = self.pool.changed
        if scores.epoch != self.policy.epoch or scores.seen < 0 or self.policy.volatile:
            scores.values, scores.columns = self._score(scores.need, self._all)
            scores.epoch = self.policy.epoch
        elif scores.seen < len(log):
            self._refresh(scores, np.array(sorted(set(log[scores.seen :])), dtype=np.int64))
        scores.seen = len(log)
        if len(log) > LOG_LIMIT:
            self._forget_log()
        return scores

    def _refresh(self, scores: _Scores, rows: Ints) -> None:
        values, columns = self._score(scores.need, rows)
        scores.values[rows] = values
        if scores.columns is not None and columns is not None:
            scores.columns[rows] = columns

    def _score(self, need: Need, rows: Ints) -> tuple[Floats, Ints | None]:
        values, columns = self.policy.score(self.pool, need, rows)
        values = values - RANK_STEP * need.rank[rows]
        values[~self.policy.able(self.pool, need, rows)] = NEVER
        return values, columns

    def _forget_log(self) -> None:
        """Every cache is scored anew once; the log starts empty."""
        self.pool.changed.clear()
        for scores in self._scores.values():
            scores.seen = -1

    def _refuse(self, need: Need) -> Refusal:
        if not (need.rank >= 0).any():
            there = ", ".join(sorted({name for name, _ in self.pool.names})) or "none"
            return Refusal(f"no device of type {' or '.join(need.request.types)}; the pool has: {there}", ever=False)
        wanted = f"{need.devices} whole device(s)" if need.whole else f"{int(need.share.max())}/1000 of a device"
        return Refusal(f"no healthy device of a fitting type has room for {wanted} now")
