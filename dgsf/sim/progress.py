"""How far a run is: it is told after every two hundredth of its calls is over, ended, refused or lost.

Calls that are over move to the end also while the last ones run, when nothing arrives any more.
"""

from __future__ import annotations

from collections.abc import Callable

STEPS = 200
Progress = Callable[[int], None]  # calls that are over


class Steps:
    """Counts, and tells now and then."""

    __slots__ = ("_calls", "_next", "_over", "_step", "_tell")

    def __init__(self, tell: Progress | None, calls: int) -> None:
        self._tell = tell
        self._calls = calls
        self._over = 0
        self._step = max(1, calls // STEPS)
        self._next = self._step

    def one_more(self) -> None:
        """A call is over."""
        self._over += 1
        if self._over >= self._next and self._tell is not None:
            self._next += self._step
            self._tell(self._over)
