"""Whose turn it is among waiting tenants: start-time fair queueing in device time.

Each tenant has a clock that its device time moves on.  The one that is furthest behind goes first.  A tenant that did
not wait is not paid for it later: when it begins to wait, its clock is brought up to that of the one served last.
"""

from __future__ import annotations

from collections.abc import Sequence


class FairClock:
    """The clocks of all tenants; calls are named by their number."""

    def __init__(self, tenant_of: Sequence[int], tenants: int) -> None:
        self._tenant_of = tenant_of
        self._clock = [0.0] * tenants
        self._waiting = [0] * tenants
        self._served = 0.0

    def turn(self, call: int) -> float:
        """The lower, the sooner."""
        return self._clock[self._tenant_of[call]]

    def waits(self, call: int) -> None:
        tenant = self._tenant_of[call]
        if self._waiting[tenant] == 0:
            self._clock[tenant] = max(self._clock[tenant], self._served)
        self._waiting[tenant] += 1

    def served(self, call: int) -> None:
        tenant = self._tenant_of[call]
        self._waiting[tenant] -= 1
        self._served = max(self._served, self._clock[tenant])

    def used(self, call: int, device_s: float) -> None:
        self._clock[self._tenant_of[call]] += device_s
