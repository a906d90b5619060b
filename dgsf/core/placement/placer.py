"""Answers requests from a pool by a policy: filters, scores, picks; the same code in production and in simulations.

Scores are kept per shape of request, those of shapes that came lately.  When a shape comes again, only the rows that
changed since are looked at anew, and only those that have room are scored, so a decision costs little more than one
look over the rows.  Where many are scored at once, one of those that look alike is.  Weights change the score of the
few devices where they are, so only those are scored for each request.  It decides; booking is the pool's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import replace
from random import Random

import numpy as np

from dgsf.core.placement.looks import Looks
from dgsf.core.placement.model import Placement, Refusal, Request
from dgsf.core.placement.need import RANK_STEP, Need
from dgsf.core.placement.policy import Policy
from dgsf.core.placement.pool import Floats, Ints, Part, Place, Pool
from dgsf.core.placement.refusing import refusal

NEVER = -np.inf
SHAPES = 4096  # kept at most,
SCORES_BYTES = 2**28  # and no more than so much memory: shapes have 24 bytes for every row, 62,120 rows 1.5 MB
FEW = 64  # devices with the weights of a request; where there are more, its function's scores are kept too
BLOCK = 4096  # rows that are scored at once: what is computed for them stays in the processor's caches
MANY = 256  # rows to score, from which on those that look alike are scored once


class _Scores:
    """The scores of one shape, and how often each row had changed when it was scored."""

    __slots__ = ("columns", "epoch", "need", "refusal", "seen", "values")

    def __init__(self, need: Need, rows: int) -> None:
        self.need = need
        self.values: Floats = np.full(rows, NEVER)
        self.columns: Ints = np.zeros(rows, dtype=np.int64)
        self.seen: Ints = np.full(rows, -1, dtype=np.int64)
        self.epoch = -1
        self.refusal: Refusal | None = None


class Placer:
    """Places requests, one at a time."""

    def __init__(self, pool: Pool, policy: Policy, random: Random) -> None:
        self.pool = pool
        self.policy = policy
        self._random = random
        self._scores: OrderedDict[object, _Scores] = OrderedDict()  # the shape that came last is the last
        self._looks = Looks(pool) if policy.by_looks else None
        self._most_shapes = max(16, min(SHAPES, SCORES_BYTES // (24 * max(1, len(pool.nodes)))))

    def place(self, request: Request, only: Part | None = None) -> Placement | Refusal:
        """The best place that has room now, or why there is none.  Nothing is booked.  `only`: what will do."""
        if only is None:
            answer = self._place(request)
        else:
            with self.pool.only(only):
                answer = self._place(request)
        if isinstance(answer, Placement):
            self.policy.chose(request, self.pool)
        return answer

    def _place(self, request: Request) -> Placement | Refusal:
        self.policy.observe(request, self.pool)
        there = self._with_weights(request)
        if self.policy.decides(request):
            scores = self._of_shape(request)
            need = scores.need.instead(request, there)
            return self.policy.decide(self.pool, need, self._random) or self._refuse(scores)
        few = len(there) <= FEW
        scores = self._of_shape(request, () if few else there)
        self._bring_up_to_date(scores)
        values, columns = scores.values, scores.columns
        if self.pool.hidden is not None:
            values = np.where(self.pool.hidden, NEVER, values)
        if few and there:
            values, columns = self._drawn(scores.need, there, values, columns)
        values = self.policy.timed(self.pool, scores.need, values)
        row = self.policy.pick(values, self._random) if len(values) else -1
        if row < 0 or values[row] == NEVER:
            return self._refuse(scores)
        return self.policy.placement(self.pool, scores.need, row, int(columns[row]), self._random)

    def _with_weights(self, request: Request) -> Collection[Place]:
        """The devices that draw this request."""
        return self.pool.resident.get(request.weights, ()) if request.weights and self.policy.drawn else ()

    def _drawn(self, need: Need, there: Collection[Place], values: Floats, columns: Ints) -> tuple[Floats, Ints]:
        """The scores of a shape, those of rows with weights that a request needs as they are for this one."""
        rows = np.unique(np.fromiter((row for row, _ in there), dtype=np.int64))
        rows = rows[values[rows] != NEVER]
        if not len(rows):
            return values, columns
        values, columns = values.copy(), columns.copy()
        self._score(need.instead(need.request, there), rows, values, columns)
        return values, columns

    def _of_shape(self, request: Request, drawn_to: Collection[Place] = ()) -> _Scores:
        key = self.policy.cache_key(request)
        if drawn_to:
            key = (key, request.weights)
        scores = self._scores.get(key)
        if scores is None:
            if len(self._scores) >= self._most_shapes:
                self._scores.popitem(last=False)
            scores = self._scores[key] = _Scores(Need.of(request, self.pool), len(self.pool.nodes))
        self._scores.move_to_end(key)
        if scores.need.request is not request or scores.need.drawn_to is not drawn_to:
            scores.need = scores.need.instead(request, drawn_to)
        return scores

    def _bring_up_to_date(self, scores: _Scores) -> None:
        if scores.epoch != self.policy.epoch:
            scores.seen.fill(-1)
            scores.epoch = self.policy.epoch
        stale = scores.seen != self.pool.changes
        if self.pool.hidden is not None:
            stale &= ~self.pool.hidden
        rows = np.flatnonzero(stale)
        if self._looks is None or len(rows) < MANY or scores.need.drawn_to:
            self._refresh_all(scores, rows)
            return
        different, like = self._looks.one_of_each(rows)
        self._refresh_all(scores, different)
        scores.seen[rows] = self.pool.changes[rows]
        scores.values[rows], scores.columns[rows] = scores.values[like], scores.columns[like]

    def _refresh_all(self, scores: _Scores, rows: Ints) -> None:
        for start in range(0, len(rows), BLOCK):
            self._refresh(scores, rows[start : start + BLOCK])

    def _refresh(self, scores: _Scores, rows: Ints) -> None:
        """Score these rows, which have changed."""
        scores.seen[rows] = self.pool.changes[rows]
        scores.values[rows] = NEVER
        rows = rows[self.policy.able(self.pool, scores.need, rows)]
        if len(rows):
            self._score(scores.need, rows, scores.values, scores.columns)

    def _score(self, need: Need, rows: Ints, values: Floats, columns: Ints) -> None:
        scored, best = self.policy.score(self.pool, need, rows)
        values[rows] = scored - RANK_STEP * need.rank[rows]
        if best is not None:
            columns[rows] = best

    def _refuse(self, scores: _Scores) -> Refusal:
        if self.pool.hidden is not None:
            need = replace(scores.need, rank=np.where(self.pool.hidden, -1, scores.need.rank))
            return refusal(self.pool, need)
        if scores.refusal is None:
            scores.refusal = refusal(self.pool, scores.need)
        return scores.refusal
