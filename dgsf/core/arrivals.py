"""How soon the next call of each function comes, learned from the calls so far.

Every call raises the expected rate of its function for a minute, a while, an hour, a day and a week: one decaying
memory per time scale.  How much each memory counts is learned from all functions together: whenever a call comes,
each memory gets the credit for its share of the rate that was expected just before.  A function has levels: level 2
is its second call at the same time, which has memories of its own.  No clock is read here; time comes in as seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SCALES_S = (60.0, 300.0, 1_200.0, 5_400.0, 21_600.0, 86_400.0, 604_800.0)
PRIOR_CALLS = 50.0  # how many calls the first guess is worth
FIRST_SHARE = 0.9  # of all calls, those that memories explain at first
Key = tuple[str, int]


class ArrivalModel:
    """The rate at which each (function, level) is expected to be called, in calls per second."""

    def __init__(self, scales_s: Sequence[float] = SCALES_S, prior_calls: float = PRIOR_CALLS) -> None:
        self._scales = np.asarray(scales_s, dtype=float)
        count = len(scales_s)
        self.keys: list[Key] = []
        self._rows: dict[Key, int] = {}
        self._memory = np.zeros((16, count))
        self._seen_at = np.zeros(16)
        self._class = np.zeros(16, dtype=np.intp)  # 0: first level, 1: the levels above
        self.weights = np.full((2, count), FIRST_SHARE / count)
        self._credit = self.weights * prior_calls
        self._calls = np.full(2, prior_calls)

    def saw(self, function: str, level: int, now: float) -> None:
        """A call came when `level - 1` others of its function were running."""
        row = self._row((function, level))
        kind = self._class[row]
        memory = self._memory[row] * np.exp((self._seen_at[row] - now) / self._scales)
        expected = self.weights[kind] * memory
        total = float(expected.sum())
        if total > 0:
            self._credit[kind] += expected / total
        self._calls[kind] += 1
        self.weights[kind] = self._credit[kind] / self._calls[kind]
        self._memory[row] = memory + 1 / self._scales
        self._seen_at[row] = now

    def rates(self, now: float) -> NDArray[np.float64]:
        """The expected rates of all `keys`, in their order."""
        count = len(self.keys)
        memory = self._memory[:count] * np.exp((self._seen_at[:count, None] - now) / self._scales)
        rates: NDArray[np.float64] = (memory * self.weights[self._class[:count]]).sum(axis=1)
        return rates

    def _row(self, key: Key) -> int:
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = len(self.keys)
            self.keys.append(key)
            if row >= len(self._seen_at):
                self._grow()
            self._class[row] = 0 if key[1] == 1 else 1
        return row

    def _grow(self) -> None:
        self._memory = np.vstack([self._memory, np.zeros_like(self._memory)])
        self._seen_at = np.concatenate([self._seen_at, np.zeros_like(self._seen_at)])
        self._class = np.concatenate([self._class, np.zeros_like(self._class)])
