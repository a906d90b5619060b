"""How long starts take, learned for each function from those that were seen: a running mean that follows changes.

The first guess counts as one start.  A function that was not seen to start goes by the mean of all.
"""

from __future__ import annotations

REMEMBERED = 16.0  # starts


class LoadTimes:
    """Seconds from the wish for an instance until it has loaded."""

    def __init__(self, first_guess_s: float) -> None:
        self.mean_s = first_guess_s  # of all functions
        self._starts = 1
        self._own: dict[str, tuple[int, float]] = {}  # starts, mean

    def saw(self, function: str, seconds: float) -> None:
        """A start took so long."""
        starts, mean = self._own.get(function, (1, self.mean_s))
        self._own[function] = (starts + 1, _moved(mean, seconds, starts))
        self.mean_s = _moved(self.mean_s, seconds, self._starts)
        self._starts += 1

    def of(self, function: str) -> float:
        return self._own[function][1] if function in self._own else self.mean_s

    def forget(self, function: str) -> None:
        self._own.pop(function, None)

    @property
    def alike(self) -> bool:
        """Whether all functions have the same, because none was seen."""
        return not self._own


def _moved(mean: float, seconds: float, starts: int) -> float:
    return mean + (max(0.0, seconds) - mean) / min(starts + 1, REMEMBERED)
