"""How long work may be held back, so that several calls leave in one batch. Pure.

A batch costs the guest a system call and wakes two processes; held back for too long, it lets the device run
dry.  So the first batch after an answer leaves soon, when the device has nothing to do, and each later one waits a
little longer, up to what sending itself suggests: where it is slow, batches are fewer.
"""

from __future__ import annotations

FIRST_SECONDS = 50e-6
SECOND_SECONDS = 100e-6
GROWTH = 1.5  # from one batch to the next
USUAL_SECONDS = 500e-6
LONGEST_SECONDS = 2e-3
SENDING_SHARE = 0.1  # of its time that the guest may spend on sending
_SMOOTH = 0.2


class Pace:
    """Learns from how long sending takes."""

    __slots__ = ("_cost", "_hold")

    def __init__(self) -> None:
        self._cost = 0.0
        self._hold = SECOND_SECONDS / GROWTH

    def sent(self, seconds: float) -> float:
        """A batch left and took so long to send; returns how long the next may be held back."""
        self._cost += (seconds - self._cost) * _SMOOTH
        most = min(LONGEST_SECONDS, max(USUAL_SECONDS, self._cost / SENDING_SHARE))
        self._hold = min(self._hold * GROWTH, most)
        return self._hold

    def answered(self) -> float:
        """An answer came; returns how long the next batch, a first one, may be held back."""
        self._hold = SECOND_SECONDS / GROWTH
        return FIRST_SECONDS
