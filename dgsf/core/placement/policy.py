"""What a placement policy is: a score for each row, a choice among them, and which devices of the row to take.

The base class is first fit.  Others override `score`, and where they must the rest.  A policy is pure: its answer
depends on the pool, the request, what it has observed, and the random numbers that it is handed.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar

import numpy as np

from dgsf.core.placement.model import Placement, Request
from dgsf.core.placement.need import Need
from dgsf.core.placement.pool import Bools, Floats, Ints, Pool


class Policy:
    """First fit: the first row with room, in it the first devices."""

    name: ClassVar[str] = "first_fit"
    volatile: ClassVar[bool] = False  # scores depend on more than shape and row: never kept
    epoch: int = 0  # raised when what it has learned makes every kept score old

    def observe(self, request: Request, pool: Pool) -> None:
        """A request arrives; policies that learn do it here."""

    def cache_key(self, request: Request) -> object:
        """Requests with one key get one score."""
        return request.shape

    def able(self, pool: Pool, need: Need, rows: Ints) -> Bools:
        """Which of these rows can take it now."""
        return need.rows(pool, rows)

    def score(self, pool: Pool, need: Need, rows: Ints) -> tuple[Floats, Ints | None]:
        """The higher the better, and optionally the device to take in each row."""
        return np.zeros(len(rows)), None

    def pick(self, values: Floats, random: Random) -> int:
        """The row to take: the first of the best."""
        return int(values.argmax())

    def column(self, pool: Pool, need: Need, row: int, random: Random) -> int:
        """The device of the row that one share is taken from: the first with room."""
        return int(need.columns(pool, np.array([row]))[0].argmax())

    def placement(self, pool: Pool, need: Need, row: int, columns: Ints | None, random: Random) -> Placement:
        """The devices of the row that was picked."""
        if need.devices == 0:
            chosen: tuple[int, ...] = ()
        elif need.whole:
            able = need.columns(pool, np.array([row]))[0]
            chosen = tuple(int(column) for column in np.flatnonzero(able)[: need.devices])
        elif columns is not None:
            chosen = (int(columns[row]),)
        else:
            chosen = (self.column(pool, need, row, random),)
        devices = tuple(int(pool.ids[row, column]) for column in chosen)
        return Placement(devices, pool.nodes[row], row, chosen, int(need.share[row]) if chosen else 0)


class Tightest(Policy):
    """Inside the row, the device that is left fullest."""

    def column(self, pool: Pool, need: Need, row: int, random: Random) -> int:
        able = need.columns(pool, np.array([row]))[0]
        return int(np.where(able, pool.room[row], np.iinfo(np.int64).max).argmin())
