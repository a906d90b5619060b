"""When a session's state is worth saving. Pure.

Losing the device costs the time to bring its state back: the last checkpoint's bytes, then everything done
since.  A checkpoint costs time too: while it is copied and sent, the program goes on more slowly.  So one is taken
when a replay would take too long, or would before the next good moment, but never so often that a program loses more
than a small share of its working time to them (while it rests nothing has to be replayed, and nothing is saved up);
and always before the journal outgrows its memory.  The longer a replay would take, the larger is the share, within
bounds: a machine on which checkpoints are slow must not make a loss slow as well.

The share holds whatever is guessed: what a checkpoint was seen to cost is owed, and the next one waits until the
program has worked long enough for it.  So all but the last are paid for.  The guess of what the next will cost can
only delay it further.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

REPLAY_SECONDS = 0.8
SHARE = 0.07
JOURNAL_BYTES = 256 * 1024**2
BYTES_PER_SECOND = 1e9  # until it has been measured; few links are slower, and the first must not come too early
_LEAST_LOST = 0.1  # of the time that one is sent: a program loses at least so much beside the copy
_LEAST_REPLAY = 0.5  # of the bound: what is not worth saving yet, however long the next round will be
_LEAST_SECONDS = 0.002
_GROWN = 1.1  # times the largest before: more than memory for that one holds
_MOST_TIMES = 3.0  # the share, when a replay would take far too long
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
        return long and cost <= self.share_for(busy) * worked

    def share_for(self, busy: float) -> float:
        """Of the time worked, what may be lost to a checkpoint when there is so much to replay."""
        late = max(1.0, busy / self.replay_seconds) if self.replay_seconds > 0 else _MOST_TIMES
        return self.share * min(late * late, _MOST_TIMES)


def time_lost(under_way: float, calls: int, calls_per_second: float, copied: float = 0.0) -> float:
    """What a program lost while a checkpoint was under way: it made so many calls, and else makes so many a second.

    While the state was `copied`, the first part of that time, its device did nothing else.
    """
    usual = calls / calls_per_second if calls_per_second > 0 else 0.0
    return min(under_way, max(copied + _LEAST_LOST * (under_way - copied), under_way - usual))


@dataclass(slots=True)
class CheckpointCost:
    """What those before took and the next will take."""

    bytes_per_second: float = BYTES_PER_SECOND
    bytes: float = 0.0
    measured: bool = False
    largest: int = 0  # that this device has given
    owed: float = 0.0  # seconds that were lost and are not paid for yet
    _timed: bool = False  # whether the speed is more than a guess
    _was_fresh: bool = False

    def expect_at_least(self, size: int) -> None:
        """Nothing is measured yet, but so much was sent to the device."""
        if not self.measured:
            self.bytes += size

    def owe(self, seconds: float, paid: float = math.inf) -> None:
        """So much was lost; the work before it has `paid` for so much of what was owed then."""
        self.owed = max(0.0, self.owed - paid) + seconds

    def measure(self, size: int, seconds: float, paid: float = math.inf) -> None:
        """One was taken and cost the program so much: the latest size, the speed as a running mean.

        One that is larger than all before is slow, because its memory is fresh: it says little of the next, unless
        that will be fresh, too, as this one was after another.  But it is owed like any.
        """
        self.owe(seconds, paid)
        fresh, self.largest = size > _GROWN * self.largest, max(size, self.largest)
        if size >= 1_000_000 and (self._was_fresh or not fresh):
            speed = size / max(seconds, _LEAST_SECONDS)
            self.bytes_per_second = (self.bytes_per_second + speed) / 2 if self._timed else speed
            self._timed = True
        self.bytes, self.measured, self._was_fresh = size, True, fresh

    def begin_again(self) -> None:
        """On another device, which has no memory for it yet; what is owed stays."""
        self.largest = 0

    @property
    def seconds(self) -> float:
        """What must be worked for before the next: it, and what is owed of those before."""
        return max(self.owed, _LEAST_SECONDS + self.bytes / self.bytes_per_second)
