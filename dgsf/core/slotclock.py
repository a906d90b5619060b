"""Billing near the device: how the busy time of one slot is divided among the calls that used it.

The proxy sees when the slot became busy and when answers arrive; it never trusts the worker's clock for the
sum.  Several short calls may be answered in one read; the time observed is then divided by the run times
that the worker reports, which only decide the split.  What a worker under-reports is carried over to its next
calls, all of one tenant, so the sum of all shares is exactly the busy time.
"""

from __future__ import annotations

from collections.abc import Sequence


class SlotClock:
    """Integer microseconds; nothing is lost or counted twice."""

    __slots__ = ("_carried", "_since")

    def __init__(self) -> None:
        self._since = -1
        self._carried = 0

    def busy(self, now_us: int) -> None:
        """A call was sent; starts the clock if the slot was idle."""
        if self._since < 0:
            self._since = now_us

    def ended(self, now_us: int, reported_us: Sequence[int], still_busy: bool) -> list[int]:
        """The shares of calls that just ended, in order."""
        available = self._carried + max(0, now_us - self._since if self._since >= 0 else 0)
        self._since = now_us if still_busy else -1
        if len(reported_us) == 1 and not still_busy:
            self._carried = 0
            return [available]
        total = min(available, sum(max(0, us) for us in reported_us)) if still_busy else available
        self._carried = available - total
        return split(total, reported_us)


def split(total: int, weights: Sequence[int]) -> list[int]:
    """Divide an integer by weights, exactly: shares differ from the true quotient by less than one."""
    positive = [max(0, weight) for weight in weights]
    whole = sum(positive)
    if whole == 0:
        positive, whole = [1] * len(positive), len(positive)
    shares, given, weighed = [], 0, 0
    for weight in positive:
        weighed += weight
        upto = total * weighed // whole
        shares.append(upto - given)
        given = upto
    return shares
