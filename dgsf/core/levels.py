"""How soon the many instances of a crowded function are used, learned from how many of its calls have run at once.

The first few beyond those that run now follow from calls and runs (`core.spares`).  What lies beyond is made by bursts,
and of these only the past tells: each level, which is the number of instances that a call needs with those that run,
has an arrival model of its own.  Calls that wait for a load do not count: were it warm, they would have
ended.  An instance is never wanted less than the one after it, which is reached over it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from dgsf.core.arrivals import ArrivalModel, Key
from dgsf.core.spares import MOST_SPARES


class Levels:
    """The rates at which calls reach the levels that no few spares cover."""

    def __init__(self) -> None:
        self._model = ArrivalModel[Key]()

    def saw(self, function: str, running: int, now: float) -> None:
        """A call came while so many others of its function ran, loaded."""
        if running >= MOST_SPARES:
            self._model.saw((function, running + 1), now)

    def forget(self, before: float, below: float, now: float) -> None:
        self._model.forget(before, below, now)

    @property
    def remembers_any(self) -> bool:
        return bool(self._model.functions)

    def rates(self, now: float) -> Mapping[str, Mapping[int, float]]:
        """By function and level, in calls per second."""
        found: dict[str, dict[int, float]] = defaultdict(dict)
        for (function, level), rate in zip(self._model.functions, self._model.rates(now).tolist(), strict=True):
            found[function][level] = rate
        return found


def with_levels(near: Sequence[float], reached: Mapping[int, float], running: int, least: float) -> list[float]:
    """The rates of all instances beyond those that run: `near`, and then the levels to the last one over `least`."""
    count = max((level - running for level, rate in reached.items() if rate >= least), default=0)
    beyond = [reached.get(running + place, 0.0) for place in range(len(near) + 1, count + 1)]
    rates = [*near, *beyond]
    for place in reversed(range(len(rates) - 1)):
        rates[place] = max(rates[place], rates[place + 1])
    return rates
