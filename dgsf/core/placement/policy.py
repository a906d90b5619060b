"""What a placement policy is: a score for each row, a choice among them, and which devices of the row to take.

The base class is first fit.  Others override `score`, and where they must the rest.  A policy is pure: its answer
depends on the pool, the request, what it has observed, and the random numbers that it is handed.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar

import numpy as np

from dgsf.core.placement.model import NO_SLICE, Placement, Request, Whose
from dgsf.core.placement.need import Need
from dgsf.core.placement.pool import Bools, Floats, Ints, Pool
from dgsf.core.placement.speeds import Speeds


class Policy:
    """First fit: the first row with room, in it the first devices."""

    name: ClassVar[str] = "first_fit"
    names_device: ClassVar[bool] = False  # `score` also says which device of each row it means
    by_looks: ClassVar[bool] = False  # `able` and `score` go by what `Looks` tells apart, and are dear
    drawn: ClassVar[bool] = False  # devices that have the weights of a request are scored otherwise
    epoch: int = 0  # raised when what it has learned makes every kept score old

    def look_at(self, pool: Pool) -> None:
        """The next requests are for this pool; what was learned of requests stays."""

    def observe(self, request: Request, pool: Pool) -> None:
        """A request arrives; policies that learn do it here."""

    def use(self, speeds: Speeds) -> None:
        """What is known of how fast functions run on each type; most policies do not look at it."""

    def ran(self, whose: Whose, type_: str, seconds: float) -> None:
        """A run has ended on a device of this type; policies that learn speeds do it here."""

    def cache_key(self, request: Request) -> object:
        """Requests with one key get one score, but for devices that draw one of them (`drawn`)."""
        return request.shape

    def decides(self, request: Request) -> bool:
        """Whether `decide` answers this request, because its score depends on more than its shape."""
        return False

    def decide(self, pool: Pool, need: Need, random: Random) -> Placement | None:
        """The place for a request that `decides` said yes to; None: no room."""
        raise NotImplementedError

    def looks_at_ends(self, request: Request) -> bool:
        """Whether it minds for this request until when devices are in use."""
        return self.decides(request)

    def able(self, pool: Pool, need: Need, rows: Ints) -> Bools:
        """Which of these rows can take it now."""
        return need.rows(pool, rows)

    def score(self, pool: Pool, need: Need, rows: Ints) -> tuple[Floats, Ints | None]:
        """The higher the better, for rows that can take it; and optionally which device of each row."""
        return np.zeros(len(rows)), None

    def chose(self, request: Request, pool: Pool) -> None:
        """The request has been given a place, which is not booked yet."""

    def timed(self, pool: Pool, need: Need, values: Floats) -> Floats:
        """Scores of all rows, which are kept by shape, with what depends on the request's duration."""
        return values

    def pick(self, values: Floats, random: Random) -> int:
        """The row to take: the first of the best."""
        return int(values.argmax())

    def column(self, pool: Pool, need: Need, row: int, random: Random) -> int:
        """The device of the row that one share is taken from: the first with room."""
        return int(need.columns(pool, np.array([row]))[0].argmax())

    def placement(self, pool: Pool, need: Need, row: int, best: int, random: Random) -> Placement:
        """The devices of the row that was picked; `best` is the device that `score` named, if it names any."""
        if need.devices == 0:
            chosen: tuple[int, ...] = ()
        elif need.whole:
            able = need.columns(pool, np.array([row]))[0]
            chosen = tuple(int(column) for column in np.flatnonzero(able)[: need.devices])
        elif self.names_device:
            chosen = (best,)
        else:
            chosen = (self.column(pool, need, row, random),)
        return placed(pool, row, chosen, int(need.share[row]) if chosen else 0)


def placed(pool: Pool, row: int, columns: tuple[int, ...], share: int, owned_slice: int = NO_SLICE) -> Placement:
    """A placement in this row."""
    devices = tuple(int(pool.ids[row, column]) for column in columns)
    return Placement(devices, pool.nodes[row], row, columns, share, owned_slice)


class Tightest(Policy):
    """Inside the row, the device that is left fullest."""

    def column(self, pool: Pool, need: Need, row: int, random: Random) -> int:
        able = need.columns(pool, np.array([row]))[0]
        return int(np.where(able, pool.room[row], np.iinfo(np.int64).max).argmin())
