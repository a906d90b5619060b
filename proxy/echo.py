"""Echoes on a link: PINGs one after the other, of which the quickest PONG counts.

The links own the frames; this only counts and takes the time.  It costs a few round trips when a worker or session
begins, and now and then while it lives (`proxy.measuring`).
"""

from __future__ import annotations

from collections.abc import Callable

from dgsf.clock import Clock

ECHOES = 4


class Echo:
    """A few echoes, then `done` hears the least round trip in µs."""

    def __init__(
        self, clock: Clock, ping: Callable[[], None], done: Callable[[int], None], echoes: int = ECHOES
    ) -> None:
        self._clock = clock
        self._ping = ping
        self._done = done
        self._left = echoes
        self._sent_us = 0
        self._least_us: int | None = None

    @property
    def over(self) -> bool:
        """Whether none is on its way."""
        return self._left <= 0

    def start(self) -> None:
        self._sent_us = self._clock.now_us()
        self._ping()

    def stop(self) -> None:
        """No further one; that which is on its way is the last."""
        self._left = min(self._left, 1)

    def pong(self) -> bool:
        """One has come back; False if none was on its way."""
        if self._left <= 0:
            return False
        took = self._clock.now_us() - self._sent_us
        self._least_us = took if self._least_us is None else min(took, self._least_us)
        self._left -= 1
        if self._left:
            self.start()
        else:
            self._done(self._least_us)
        return True
