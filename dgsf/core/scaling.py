"""How many calls to send ahead to one worker, and how many workers a function should have.

Short calls are sent ahead, so that a worker never waits for the proxy's next turn; long ones are not,
because a call behind another cannot move to a free worker any more.  Both follow from one estimate:
how long a call takes, from an average and its deviation.
"""

from __future__ import annotations

AHEAD_US = 2_000  # a call may stand behind at most this much expected work in one worker
PACK_US = 500  # below this much expected work a busy worker is as good as an idle one
BACKLOG_US = 5_000  # more expected waiting than this deserves another worker


class RunTime:
    """A running estimate of a function's run time; jumps up at once, comes down slowly."""

    __slots__ = ("_deviation", "_mean")

    def __init__(self) -> None:
        self._mean = -1.0
        self._deviation = 0.0

    def saw(self, run_us: int) -> None:
        if self._mean < 0:
            self._mean = float(run_us)
            return
        off = run_us - self._mean
        self._mean += off / 16
        self._deviation += (abs(off) - self._deviation) / (4 if off > 0 else 32)

    @property
    def known(self) -> bool:
        return self._mean >= 0

    @property
    def expected_us(self) -> float:
        """A cautious guess: mean plus two deviations, at least one microsecond."""
        return max(1.0, self._mean + 2 * self._deviation)


class RunTimes:
    """Run times of one function apart by type of device: mixed, they would hold on none of them.

    Of all types, what ran last is told: it is in use, so its estimate follows what happens.  That of a type that is
    not used any more, because it seemed too slow, would never become better.
    """

    __slots__ = ("_by_type", "_latest")

    def __init__(self) -> None:
        self._by_type: dict[str, RunTime] = {}
        self._latest = ""

    def saw(self, type_: str, run_us: int) -> None:
        known = self._by_type.get(type_)
        if known is None:
            known = self._by_type[type_] = RunTime()
        known.saw(run_us)
        self._latest = type_

    @property
    def latest(self) -> tuple[float, str]:
        """What a call is expected to take, in seconds, and on which type; 0: not known."""
        known = self._by_type.get(self._latest)
        return (0.0 if known is None else known.expected_us / 1e6, self._latest)


def depth(run_time: RunTime, limit: int) -> int:
    """How many calls one worker may hold at once."""
    if not run_time.known:
        return 1
    return max(1, min(limit, int(AHEAD_US / run_time.expected_us)))


def pack(run_time: RunTime, limit: int) -> int:
    """Up to how many calls a busy worker is preferred to waking an idle one."""
    if not run_time.known:
        return 1
    return max(1, min(limit, int(PACK_US / run_time.expected_us)))


def more_workers(queued: int, running: int, workers: int, starting: int, max_workers: int, run_time: RunTime) -> int:
    """How many workers to start now."""
    room = (max_workers or 1_000_000) - workers - starting
    if queued == 0 or room <= 0:
        return 0
    if workers == 0 and run_time.known and run_time.expected_us < BACKLOG_US:
        return 1 if starting == 0 else 0
    if not run_time.known or run_time.expected_us >= BACKLOG_US:
        return max(0, min(room, queued - starting))
    backlog_us = (queued + running) * run_time.expected_us / (workers + starting)
    return min(room, 1) if backlog_us > BACKLOG_US else 0
