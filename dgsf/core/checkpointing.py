"""When a session's state is worth saving. Pure.

Losing the device costs the time to bring its state back: the last checkpoint's bytes, then everything done
since.  A checkpoint costs time too: while it is copied and sent, the program goes on more slowly.  So one is taken
when a replay would take too long, or would before the next good moment, but never so often that a program loses more
than a small share of its working time to them (while it rests nothing has to be replayed, and nothing is saved up);
and always before the journal outgrows its memory.
"""

from __future__ import annotations

from dataclasses import dataclass

REPLAY_SECONDS = 0.8
SHARE = 0.07
JOURNAL_BYTES = 256 * 1024**2
BYTES_PER_SECOND = 3e9  # until it has been measured
_LEAST_LOST = 0.1  # of the time that one is sent: a program loses at least so much beside the copy
_LEAST_REPLAY = 0.5  # of the bound: what is not worth saving yet, however long the next round will be
_LEAST_SECONDS = 0.002
_GROWN = 1.1  # times the largest before: more than memory for that one holds
_EARLY = 0.75  # of the journal's memory: from here on a good moment is waited for


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """The bounds."""

    replay_seconds: float = REPLAY_SECONDS
    share: float = SHARE
    journal_bytes: int = JOURNAL_BYTES

    def due(self, *, busy: float, worked: float, cost: float, journal_bytes: int, ahead: float = 0.0) -> bool:
        """Now? `busy`: work to replay; `worked`: of it, since the last one had ended; `cost`: what it would take.

        `ahead`: work until the next moment that is as good as this one, if that is known.
        """
        if journal_bytes >= self.journal_bytes * _EARLY:
            return True
        long = busy >= self.replay_seconds * _LEAST_REPLAY and busy + ahead >= self.replay_seconds
        return long and cost <= self.share * worked


def time_lost(under_way: float, calls: int, calls_per_second: float, copied: float = 0.0) -> float:
    """What a program lost while a checkpoint was under way: it made so many calls, and else makes so many a second.

    While the state was `copied`, the first part of that time, its device did nothing else.
    """
    usual = calls / calls_per_second if calls_per_second > 0 else 0.0
    return min(under_way, max(copied + _LEAST_LOST * (under_way - copied), under_way - usual))


@dataclass(slots=True)
class CheckpointCost:
    """What the next checkpoint will take, from those before."""

    bytes_per_second: float = BYTES_PER_SECOND
    bytes: float = 0.0
    measured: bool = False
    largest: int = 0  # that this device has given

    def expect_at_least(self, size: int) -> None:
        """Nothing is measured yet, but so much was sent to the device."""
        if not self.measured:
            self.bytes += size

    def measure(self, size: int, seconds: float) -> None:
        """One was taken and cost the program so much: the latest size, the speed as a running mean.

        One that is larger than all before is slow, because its memory is fresh: it says nothing of the next.
        """
        fresh, self.largest = size > _GROWN * self.largest, max(size, self.largest)
        self.bytes = size
        speed = max(size, 1) / max(seconds, _LEAST_SECONDS)
        if size >= 1_000_000 and not fresh:
            self.bytes_per_second = (self.bytes_per_second + speed) / 2
        self.measured = True

    def begin_again(self) -> None:
        """On another device, which has no memory for it yet."""
        self.largest = 0

    @property
    def seconds(self) -> float:
        return _LEAST_SECONDS + self.bytes / self.bytes_per_second
