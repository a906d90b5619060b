"""A request made ready for one pool: what it needs of a row, and which rows have that now."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from dgsf.core.placement.model import WHOLE, Request
from dgsf.core.placement.pool import Bools, Ints, Place, Pool

RANK_STEP = 1e9  # of a score, for each place in the order of types: a preferred type wins over any score


@dataclass(frozen=True, slots=True)
class Need:
    """What a request takes, for every row of a pool."""

    request: Request
    rank: Ints  # (rows) position among the preferred types; -1: not acceptable
    share: Ints  # (rows) thousandths of each device that it takes
    devices: int  # how many devices; 0: none
    whole: bool
    drawn_to: Collection[Place] = ()  # where weights that it needs are, if that counts

    @staticmethod
    def of(request: Request, pool: Pool) -> Need:
        rows, whole = len(pool.nodes), request.whole
        if whole:
            share, devices = np.full(rows, WHOLE, dtype=np.int64), max(1, request.devices)
        elif request.share is None:
            share, devices = pool.slot, 1
        else:
            share, devices = np.full(rows, request.share, dtype=np.int64), int(request.share > 0)
        return Need(request, pool.rank(request.types), share, devices, whole)

    def instead(self, request: Request, drawn_to: Collection[Place] = ()) -> Need:
        """The same need for another request of the same shape."""
        return Need(request, self.rank, self.share, self.devices, self.whole, drawn_to)

    def columns(self, pool: Pool, rows: Ints) -> Bools:
        """Which devices of these rows have room for it."""
        return (pool.room[rows] >= self.share[rows, None]) & (pool.memory[rows] >= self.request.memory_bytes)

    def nodes(self, pool: Pool, rows: Ints | slice = slice(None)) -> Bools:
        """Which of these rows, of all if none are given, are of a fitting type and have what it needs of their node."""
        request = self.request
        able: Bools = (pool.cpu[rows] >= request.cpu_milli) & (pool.host_memory[rows] >= request.host_memory)
        able &= self.rank[rows] >= 0
        return able

    def rows(self, pool: Pool, rows: Ints) -> Bools:
        """Which of these rows can hold it now."""
        able = self.nodes(pool, rows)
        if self.devices == 1:
            able &= self.columns(pool, rows).any(axis=1)
        elif self.devices:
            able &= self.columns(pool, rows).sum(axis=1) >= self.devices
        return able
