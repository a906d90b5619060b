"""Whose turn it is among waiting tenants: start-time fair queueing in device time.

Each tenant has a clock.  A call moves it on when it starts, by what calls of its function have taken so far, and the
clock is put right when it ends; so of many that start at once, not all are of one tenant.  The tenant that is furthest
behind goes first.  Who did not call is not paid for it later: when one of whom nothing waits calls, its clock is
brought up to where the last call was started, by what is known to be used: a guess may be taken back.
"""

from __future__ import annotations

UNKNOWN_S = 1.0  # what a call takes as long as none has ended


class _Mean:
    """Of run times."""

    __slots__ = ("count", "total_s")

    def __init__(self) -> None:
        self.count = 0
        self.total_s = 0.0

    def saw(self, seconds: float) -> None:
        self.count += 1
        self.total_s += seconds


class FairClock:
    """The clocks of all tenants, and what calls of each function are expected to take."""

    def __init__(self, tenants: int, functions: int) -> None:
        self.clock = [0.0] * tenants  # the lower, the sooner
        self._waiting = [0] * tenants
        self._guessed = [0.0] * tenants  # of the clocks: charged for calls that still run
        self._started = 0.0  # the highest clock at which a call was started, without what was guessed
        self._took = [_Mean() for _ in range(functions)]
        self._all = _Mean()

    def comes(self, tenant: int) -> None:
        """It has a call to start or to queue."""
        if not self._waiting[tenant] and self.clock[tenant] < self._started:
            self.clock[tenant] = self._started

    def waits(self, tenant: int, calls: int) -> None:
        """So many more of its calls wait, or fewer."""
        self._waiting[tenant] += calls

    def starts(self, tenant: int, function: int, devices: float) -> float:
        """A call of it starts on such a part of a device, or so many; the answer is what it was charged."""
        self._started = max(self._started, self.clock[tenant] - self._guessed[tenant])
        charged = self._expected_s(function) * devices
        self.clock[tenant] += charged
        self._guessed[tenant] += charged
        return charged

    def stops(self, tenant: int, charged: float, used: float) -> bool:
        """It was charged so much and has used so much device time; whether that puts its clock back."""
        self.clock[tenant] += used - charged
        self._guessed[tenant] -= charged
        return used < charged

    def took(self, function: int, seconds: float) -> None:
        """A call of it has ended after so long, its load included."""
        self._took[function].saw(seconds)
        self._all.saw(seconds)

    def _expected_s(self, function: int) -> float:
        """The mean of its own calls, or of all."""
        known = self._took[function]
        if not known.count:
            known = self._all
        return known.total_s / known.count if known.count else UNKNOWN_S
