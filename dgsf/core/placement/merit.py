"""What a device type is worth to a request beside the others: how soon it is done, whether in time, at which price.

Everything is in octaves: a type that is twice as fast is worth one more.  The price counts for a part of that, also to
those whom no device makes faster, and a type that would miss the deadline comes after all that meet it, preferred or
not.  As a type gets full, it is kept for those who gain most from it: whoever takes it pays by what others gain from it
on average, as in Gavel the ratio of speeds decides, not the speed; and that it is cheap counts for less.  Types within
half a step are equals; where all are, there is nothing to say, and packing decides alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dgsf.core.placement.matching import rank_of
from dgsf.core.placement.model import WHOLE, Request
from dgsf.core.placement.pool import Floats, Ints, Pool
from dgsf.core.placement.speeds import Speeds

STEP = 0.25  # octaves: 19 %
COST_WEIGHT = 0.25  # of an octave of price against one of speed: twice the speed may cost up to 16 times as much
FREE = 0.001  # of the lowest price: what a type that costs nothing is taken for; nothing has no octaves
TOO_LATE = 10.0  # octaves
LATER = 4.0  # and so many more for each by which it is late: more than prices make up for
MOST_LEVELS = 400
FILLING = 0.5  # a type that is fuller than this part begins to have a price
PRESSURES = 4  # steps of that
REMEMBERED = 256  # requests by which gains are judged
Levels = tuple[int, ...]  # of each group, how many steps it is worse than the best


@dataclass(slots=True)
class Groups:
    """The rows of a pool whose devices are alike in type, speed and price."""

    pool: Pool
    of_row: Ints
    names: list[tuple[str, str]]
    types: list[str]
    speed: Floats
    price: Floats
    whole: Floats  # thousandths of all its devices
    alike: bool  # in speed and price
    gain: Floats  # what arrivals gain from each on average, over the mean device
    seen: int = 0
    accepted: dict[tuple[str, ...], Ints] = field(default_factory=dict)

    @staticmethod
    def of(pool: Pool) -> Groups:
        _, first, of_row = np.unique(
            np.stack([pool.model.astype(np.float64), pool.speed, pool.price]), axis=1, return_index=True,
            return_inverse=True,
        )  # fmt: skip
        of_row = of_row.reshape(-1)
        names = [pool.names[int(pool.model[row])] for row in first]
        devices = WHOLE * (pool.ids >= 0).sum(axis=1)
        whole = np.bincount(of_row, weights=devices, minlength=len(first)).astype(np.float64)
        speed, price = np.where(whole > 0, pool.speed[first], 0.0), pool.price[first]
        used = whole > 0
        alike = len(set(speed[used].tolist())) < 2 and len(set(price[used].tolist())) < 2
        types = [name for name, _ in names]
        return Groups(pool, of_row, names, types, speed, price, whole, alike, np.zeros(len(first)))

    def acceptable(self, types: Sequence[str]) -> Ints:
        """The groups that have devices of these types."""
        key = tuple(types)
        if key not in self.accepted:
            ranks = [rank_of(types, names) for names in self.names]
            found = [place for place, rank in enumerate(ranks) if rank is not None and self.speed[place] > 0]
            self.accepted[key] = np.array(found, dtype=np.int64)
        return self.accepted[key]

    def pressure(self) -> Floats:
        """How much each group is nearing its end: 0 up to half full, 1 when it is full."""
        room = np.bincount(self.of_row, weights=self.pool.room.sum(axis=1), minlength=len(self.types))
        full = 1.0 - room / np.maximum(self.whole, 1.0)
        pressure: Floats = np.floor(np.clip((full - FILLING) / (1 - FILLING), 0.0, 1.0) * PRESSURES) / PRESSURES
        return pressure

    def saw(self, groups: Ints, gain: Floats) -> None:
        self.seen = min(self.seen + 1, REMEMBERED)
        self.gain[groups] += (gain - self.gain[groups]) / self.seen


class Merit:
    """Weighs the types of a pool for one request after another."""

    def __init__(
        self,
        speeds: Speeds,
        cost_weight: float = COST_WEIGHT,
        step: float = STEP,
        keeps_scarce: bool = True,
        rank_levels: int = MOST_LEVELS,
    ) -> None:
        """`rank_levels`: how many levels weigh as much as one place in the order of types."""
        self.speeds = speeds
        self._cost_weight = cost_weight
        self._step = step
        self._keeps_scarce = keeps_scarce
        self._rank_levels = rank_levels
        self._groups: Groups | None = None

    def levels(self, request: Request, pool: Pool) -> Levels | None:
        """How many steps each group of the pool is worse than the best; None: all that it accepts are equals."""
        if request.share == 0 and not request.devices:
            return None
        groups = self.groups(pool)
        if len(groups.types) < 2 or (groups.alike and not self.speeds.tells(request.whose)):
            return None
        accepted = groups.acceptable(request.types)
        if len(accepted) < 2:
            return None
        merit, late = self._merit(request, groups, accepted)
        steps = np.minimum(np.rint((merit.max() - merit) / self._step), MOST_LEVELS).astype(np.int64)
        if len(request.types) > 1 and late.any() and not late.all():
            steps[late > 0] += self._rank_levels * len(request.types)
        if not steps.any():
            return None
        levels = np.zeros(len(groups.types), dtype=np.int64)
        levels[accepted] = steps
        return tuple(levels.tolist())

    def groups(self, pool: Pool) -> Groups:
        if self._groups is None or self._groups.pool is not pool:
            before, self._groups = self._groups, Groups.of(pool)
            if before is not None and before.types == self._groups.types:  # the same pool, looked at again
                self._groups.gain, self._groups.seen = before.gain, before.seen
        return self._groups

    def _merit(self, request: Request, groups: Groups, accepted: Ints) -> tuple[Floats, Floats]:
        """What each accepted group is worth, and how much of that it loses by being late."""
        speeds = self._speed(request, groups)
        speed = speeds[accepted]
        octaves: Floats = np.log2(speed)
        cheap = self._cheapness(groups.price[accepted])
        late = _late(request, speed, _known_speed(request, groups.types, speeds) or speed.max())
        merit = octaves + cheap - late
        if self._keeps_scarce:
            groups.saw(accepted, octaves - np.average(octaves, weights=groups.whole[accepted]))
            merit = merit - groups.pressure()[accepted] * (np.maximum(groups.gain[accepted], 0.0) + cheap)
        return merit, late

    def _cheapness(self, prices: Floats) -> Floats:
        """What each price is worth beside the highest."""
        paid = prices > 0
        if not self._cost_weight or not paid.any():
            return np.zeros(len(prices))
        if not paid.all():
            prices = np.maximum(prices, FREE * prices[paid].min())
        cheap: Floats = self._cost_weight * np.log2(prices.max() / prices)
        return cheap

    def _speed(self, request: Request, groups: Groups) -> Floats:
        """Its speed on each group; alike everywhere for what takes its time on any device."""
        if not request.scales:
            return np.ones(len(groups.types))
        return self.speeds.of(request.whose, groups.types, groups.speed)


def _known_speed(request: Request, types: Sequence[str], speeds: Floats) -> float:
    """The speed of the type on which its time is known; 0: none of these."""
    named = [speed for type_, speed in zip(types, speeds.tolist(), strict=True) if type_ == request.run_on]
    return max(named, default=0.0) if request.run_s else 0.0


def _late(request: Request, speed: Floats, known: float) -> Floats:
    """Octaves that each speed loses by missing the deadline; how long it takes at the known speed is expected."""
    if request.deadline_s is None or not request.due_s:
        return np.zeros(len(speed))
    over = np.log2(request.due_s * known / speed / max(request.deadline_s, 1e-6))
    late: Floats = np.where(over > 1e-9, TOO_LATE + LATER * over, 0.0)
    return late
