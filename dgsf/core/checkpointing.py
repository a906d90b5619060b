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

The journal never holds more than its bound: from two thirds of it on a checkpoint is taken wherever the program is, and
at the bound the program waits for that one.  One that came to nothing is tried again, each time later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

REPLAY_SECONDS = 0.8
SHARE = 0.07
JOURNAL_BYTES = 384 * 1024**2
BYTES_PER_SECOND = 1e9  # until it has been measured; few links are slower, and the first must not come too early
_LEAST_LOST = 0.1  # of the time that one is sent: a program loses at least so much beside the copy
_LEAST_REPLAY = 0.5  # of the bound: what is not worth saving yet, however long the next round will be
_LEAST_SECONDS = 0.002
_GROWN = 1.1  # times the largest before: more than memory for that one holds
_MOST_TIMES = 3.0  # the share, when a replay would take far too long
_EARLY = 0.5  # of the journal's memory: from here on a good moment is waited for,
_FULL = 2 / 3  # and from here on not any more: the rest is for what comes while one is under way
_LITTLE = 1 / 16  # of it: with no more than this, something larger than all of it may come
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 64.0  # seconds after a checkpoint that came to nothing
OVERHEAD_BYTES = 64 * 1024**2  # stacks of threads that read and hash, and what is on its way


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

    def is_full(self, journal_bytes: int) -> bool:
        """Whether the next moment is good enough."""
        return journal_bytes >= self.journal_bytes * _FULL

    def has_room(self, journal_bytes: int, more: int = 0) -> bool:
        """Whether so much may be kept beside what is kept already; a single thing may be larger than the bound."""
        return journal_bytes + more <= self.journal_bytes or journal_bytes <= self.journal_bytes * _LITTLE

    def share_for(self, busy: float) -> float:
        """Of the time worked, what may be lost to a checkpoint when there is so much to replay."""
        late = max(1.0, busy / self.replay_seconds) if self.replay_seconds > 0 else _MOST_TIMES
        return self.share * min(late * late, _MOST_TIMES)


def within(policy: CheckpointPolicy, most: int | None) -> CheckpointPolicy:
    """With a journal that leaves two thirds of so much memory to states."""
    return policy if most is None else replace(policy, journal_bytes=min(policy.journal_bytes, most // 3))


def survival_bytes(lease: int) -> int:
    """Host memory that a session with so much on its device may take, to outlive that: never more.

    The state that counts, of which half may be outdated, and the one that arrives; the journal, and memory kept for it.
    """
    return 3 * lease + 2 * JOURNAL_BYTES + OVERHEAD_BYTES


@dataclass(slots=True)
class Attempts:
    """After a checkpoint that came to nothing the next one waits, each time longer."""

    failed: int = 0  # in a row
    _not_before: float = -math.inf

    def may_try(self, now: float) -> bool:
        return now >= self._not_before

    def came_to_nothing(self, now: float) -> None:
        self._not_before = now + min(_LONGEST_WAIT, _FIRST_WAIT * 2.0**self.failed)
        self.failed = min(self.failed + 1, 16)

    def succeeded(self) -> None:
        self.failed, self._not_before = 0, -math.inf


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
