"""How soon the next call of each function comes, learned from the calls so far.

Every call raises the expected rate of its function for a while, and again when it ends: who waits for an answer does
not call before, and looks at it for a moment, so some of these memories rise before they fall.  There is one memory per
time scale, from seconds to days.  Functions that have been quiet are helped by the others: the calls of all functions
lately, times the function's usual part of them, are memories too.  How much each memory counts is learned: whenever a
call comes, each memory gets the credit for its share of the rate that was expected just before.  A function with few
calls goes by the credits of all, one with many by its own.  No clock is read here; time comes in as seconds.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

SCALES_S = (6.0, 20.0, 60.0, 200.0, 600.0, 1_800.0, 7_200.0, 43_200.0, 259_200.0)  # of a function's own calls
END_SCALES_S = (10.0, 30.0, 100.0, 300.0)  # since they ended
PAUSE_SCALES_S = (5.0, 11.0, 24.0)  # the same, most likely at twice this after the end
CROWD_SCALES_S = (30.0, 200.0, 1_200.0)  # of the calls of all functions
POPULAR_S = 604_800.0  # how long a function's part of all calls is remembered
LEAST_CALLS = 0.1  # that every function is taken to have had, so that none has no part
PRIOR_CALLS = 50.0  # how many calls the first guess is worth
OWN_CALLS = 100.0  # of a function, until its own credits count as much as those of all
FIRST_SHARE = 0.9  # of all calls, those that memories explain at first
Key = tuple[str, int]  # a function and a level: 2 is its second instance in use at the same time
Floats = NDArray[np.float64]
Called = TypeVar("Called", bound=Hashable)  # functions, or levels of them


class ArrivalModel(Generic[Called]):
    """The rate at which each function is expected to be called, in calls per second."""

    def __init__(self, scales_s: Sequence[float] = SCALES_S, prior_calls: float = PRIOR_CALLS) -> None:
        self.functions: list[Called] = []
        self.rows: dict[Called, int] = {}
        self._scales = np.asarray([*END_SCALES_S, *scales_s, POPULAR_S])  # the last one is for the part of all calls
        of_ends = np.arange(len(self._scales)) < len(END_SCALES_S)
        self._call_adds = np.where(of_ends, 0.0, 1 / self._scales)
        self._end_adds = np.where(of_ends, 1 / self._scales, 0.0)
        self._pause_scales = np.asarray(PAUSE_SCALES_S)
        self._crowd_scales = np.asarray(CROWD_SCALES_S)
        kinds = len(self._scales) - 1 + len(CROWD_SCALES_S) + len(PAUSE_SCALES_S)
        self._memory = np.zeros((16, len(self._scales)))
        self._pauses = np.zeros((16, 3, len(PAUSE_SCALES_S)))  # three stages, passed one after the other
        self._seen_at = np.zeros(16)
        self._own_credit = np.zeros((16, kinds))
        self._own_calls = np.zeros((16, 1))
        self._crowd = np.zeros(len(CROWD_SCALES_S))
        self._crowd_at = 0.0
        self._popular = 0.0  # the last memory of all functions together
        self._popular_at = 0.0
        self.weights = np.full(kinds, FIRST_SHARE / kinds)
        self._credit = self.weights * prior_calls
        self._calls = prior_calls

    def saw(self, function: Called, now: float) -> float:
        """A call came; the answer is the rate that had been expected."""
        row = self._row(function, now)
        only = slice(row, row + 1)
        expected = (self._explain(now, only) * self._weights(only))[0]
        total = float(expected.sum())
        if total > 0:
            self._credit += expected / total
            self._own_credit[row] += expected / total
        self._calls += 1
        self._own_calls[row] += 1
        self.weights = self._credit / self._calls
        self._remember(row, now)
        self._memory[row] += self._call_adds
        self._crowd = self._crowd * np.exp((self._crowd_at - now) / self._crowd_scales) + 1 / self._crowd_scales
        self._crowd_at = now
        self._popular, self._popular_at = self._popular_then(now) + 1 / POPULAR_S, now
        return total

    def ended(self, function: Called, now: float) -> None:
        """A call has ended."""
        row = self._row(function, now)
        self._remember(row, now)
        self._memory[row] += self._end_adds
        self._pauses[row, 0] += 1 / self._pause_scales

    def rates(self, now: float) -> Floats:
        """The expected rates of all `functions`, in their order."""
        every = slice(len(self.functions))
        rates: Floats = (self._explain(now, every) * self._weights(every)).sum(axis=1)
        return rates

    def forget(self, before: float, below: float, now: float) -> list[Called]:
        """Functions not heard of since then, and expected less often than that, are as if they had never been."""
        count = len(self.functions)
        stay = (self._seen_at[:count] >= before) | (self.rates(now) >= below)
        gone = [function for function, stays in zip(self.functions, stay.tolist(), strict=True) if not stays]
        if gone:
            self.functions = [function for function, stays in zip(self.functions, stay.tolist(), strict=True) if stays]
            self.rows = {function: row for row, function in enumerate(self.functions)}
            for rows in (self._memory, self._pauses, self._seen_at, self._own_credit, self._own_calls):
                rows[: len(self.functions)] = rows[:count][stay]
                rows[len(self.functions) : count] = 0.0
            passed = now - self._seen_at[: len(self.functions)]
            self._popular = float((self._memory[: len(self.functions), -1] * np.exp(-passed / POPULAR_S)).sum())
            self._popular_at = now
        return gone

    def _weights(self, rows: slice) -> Floats:
        """A row per function: how much each memory counts."""
        return (self._own_credit[rows] + OWN_CALLS * self.weights) / (self._own_calls[rows] + OWN_CALLS)

    def _explain(self, now: float, rows: slice) -> Floats:
        """A row per function: what each memory says, as a rate."""
        passed = np.maximum(0.0, now - self._seen_at[rows, None])
        own = self._memory[rows] * np.exp(-passed / self._scales)
        part = (own[:, -1] * POPULAR_S + LEAST_CALLS) / self._calls_of_all(now)
        crowd = self._crowd * np.exp((self._crowd_at - now) / self._crowd_scales)
        pauses = _last_stage(self._pauses[rows], passed / self._pause_scales)
        return np.hstack([own[:, :-1], part[:, None] * crowd, pauses])

    def _calls_of_all(self, now: float) -> float:
        return self._popular_then(now) * POPULAR_S + LEAST_CALLS * len(self.functions)

    def _popular_then(self, now: float) -> float:
        return self._popular * math.exp(min(0.0, self._popular_at - now) / POPULAR_S)

    def _remember(self, row: int, now: float) -> None:
        """Lets the time pass that a function's memories have not seen."""
        passed_s = max(0.0, now - self._seen_at[row])
        self._memory[row] *= np.exp(-passed_s / self._scales)
        passed = passed_s / self._pause_scales
        first, second, _ = self._pauses[row]
        third = _last_stage(self._pauses[row][None], passed[None])[0]
        fades = np.exp(-passed)
        self._pauses[row] = np.stack([first * fades, (second + first * passed) * fades, third])
        self._seen_at[row] = now

    def _row(self, function: Called, now: float) -> int:
        row = self.rows.get(function)
        if row is None:
            row = self.rows[function] = len(self.functions)
            self.functions.append(function)
            if row >= len(self._seen_at):
                self._grow()
            self._seen_at[row] = now
        return row

    def _grow(self) -> None:
        self._memory = _doubled(self._memory)
        self._pauses = _doubled(self._pauses)
        self._seen_at = _doubled(self._seen_at)
        self._own_credit = _doubled(self._own_credit)
        self._own_calls = _doubled(self._own_calls)


def _last_stage(stages: Floats, passed: Floats) -> Floats:
    """The third stage of each row, after so many times its scale."""
    first, second, third = stages[:, 0], stages[:, 1], stages[:, 2]
    last: Floats = (third + passed * (second + first * passed / 2)) * np.exp(-passed)
    return last


def _doubled(rows: Floats) -> Floats:
    return np.concatenate([rows, np.zeros_like(rows)])
