"""Time as an argument: decisions take a Clock, so that tests and the simulator can turn it by hand."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic microseconds for durations, wall seconds for what people read."""

    def now_us(self) -> int: ...

    def wall(self) -> float: ...


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    def now_us(self) -> int:
        return time.monotonic_ns() // 1000

    def wall(self) -> float:
        return time.time()


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, start_us: int = 0, wall: float = 1_700_000_000.0) -> None:
        self._us = start_us
        self._wall = wall

    def now_us(self) -> int:
        return self._us

    def wall(self) -> float:
        return self._wall

    def advance(self, us: int) -> None:
        self._us += us
        self._wall += us / 1e6
