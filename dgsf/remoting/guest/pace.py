"""How long work may be held back, so that several calls leave in one batch. Pure.

A batch costs the guest a system call and wakes two processes; held back for too long, it lets the device run
dry.  So the first batches after an answer leave soon, and later ones wait longer only as far as the device was
found to be behind when its last answer was waited for.  Where sending is slow, batches are fewer, unless the device is
behind: then it is the device that takes the time, and the guest has some to spare.
"""

from __future__ import annotations

FIRST_SECONDS = 50e-6  # after an answer the device has nothing to do
SECOND_SECONDS = 100e-6
USUAL_SECONDS = 300e-6
LONGEST_SECONDS = 2e-3
GROWTH = 1.5  # from one batch to the next
BEHIND_SHARE = 0.5  # of the time by which the device is behind
SENDING_SHARE = 0.1  # of its time that the guest may spend on sending
_SMOOTH = 0.2


class Pace:
    """Learns from how long sending takes and how long answers are waited for."""

    __slots__ = ("_behind", "_cost", "_hold", "_limit", "_quickest")

    def __init__(self) -> None:
        self._cost = 0.0
        self._behind = 0.0
        self._hold = SECOND_SECONDS / GROWTH
        self._limit = USUAL_SECONDS
        self._quickest = float("inf")  # of all answers: about the way there and back, when nothing was to be done

    def sent(self, seconds: float) -> float:
        """A batch left and took so long to send; returns how long the next may be held back."""
        self._cost += (seconds - self._cost) * _SMOOTH
        self._hold = min(self._hold * GROWTH, self._limit)
        least = self._cost / SENDING_SHARE
        return self._hold if self._behind > least else min(LONGEST_SECONDS, max(self._hold, least))

    def answered(self, waited: float) -> float:
        """An answer came after so long; returns how long the next batch, a first one, may be held back."""
        self._quickest = min(self._quickest, waited)
        self._behind = waited - self._quickest
        self._limit = min(LONGEST_SECONDS, max(USUAL_SECONDS, self._behind * BEHIND_SHARE))
        self._hold = SECOND_SECONDS / GROWTH
        return FIRST_SECONDS
