"""Which of a function's idle instances its next call would use: the first, or one beyond those that are busy by then.

A call takes a spare instance only if all that run now are still busy; the second spare only if the first is busy too,
and so on.  How many will be busy follows from how many run now, how long runs take and how often calls
come: those that run end one by one, new ones come on top.  How long runs take is not told but follows from how many
calls find others running.  Pure arithmetic.
"""

from __future__ import annotations

import math

import numpy as np

from dgsf.core.arrivals import Floats

MOST_SPARES = 4  # of one function that are thought about here; those beyond are in `core.levels`
_MOST_RUNNING = 8  # beyond that, one more or less changes little

_FIRST_RATE = 1.0  # calls per second; keeps the mean short until enough was seen
_OWN_RATE = 0.03  # the same, until a function's own calls count as much as those of all


class RunTime:
    """The mean time that an instance is busy with a call, by Little's law: how many run / how often calls come."""

    def __init__(self) -> None:
        self._running = 0.0
        self._rates = _FIRST_RATE
        self._own: dict[str, tuple[float, float]] = {}

    def saw(self, function: str, running: int, per_s: float) -> None:
        """A call of a function that was expected so often came while so many others of it ran."""
        self._running += running
        self._rates += per_s
        own_running, own_rates = self._own.get(function, (0.0, 0.0))
        self._own[function] = own_running + running, own_rates + per_s

    def forget(self, function: str) -> None:
        self._own.pop(function, None)

    def mean_s(self, function: str) -> float:
        """That of all functions, and of this one the more the more it was called."""
        running, rates = self._own.get(function, (0.0, 0.0))
        return (running + _OWN_RATE * self._running / self._rates) / (rates + _OWN_RATE)


def spare_chances(running: int, per_s: float, run_s: float, ahead_s: float) -> list[float]:
    """The chance that a call coming `ahead_s` from now needs the first beyond those that run now, the second, ..."""
    left = math.exp(-ahead_s / run_s) if run_s > 0 else 0.0  # of what runs now
    coming = per_s * run_s * (1 - left)
    if not running:
        return _poisson(coming, MOST_SPARES)
    running = min(running, _MOST_RUNNING)
    count = running + MOST_SPARES
    return _busy(_still(running, left), _poisson(coming, count), count)[running:]


def idle_chances(per_s: Floats, run_s: Floats, ahead_s: Floats) -> Floats:
    """The same for many functions of which nothing runs: a row for each."""
    left = np.exp(-ahead_s / np.where(run_s > 0, run_s, np.inf)) * (run_s > 0)
    coming = per_s * run_s * (1 - left)
    chances = np.empty((len(per_s), MOST_SPARES))
    chances[:, 0] = np.exp(-coming)
    for n in range(1, MOST_SPARES):
        chances[:, n] = chances[:, n - 1] * coming / n
    return chances


def _still(running: int, left: float) -> list[float]:
    """The chances that 0, 1, ... of those that run now still run."""
    return [math.comb(running, n) * left**n * (1 - left) ** (running - n) for n in range(running + 1)]


def _poisson(mean: float, count: int) -> list[float]:
    chances = [math.exp(-mean)]
    for n in range(1, count):
        chances.append(chances[-1] * mean / n)
    return chances


def _busy(still: list[float], new: list[float], count: int) -> list[float]:
    """The chances that 0, 1, ... run, of those from before and new ones together."""
    return [sum(still[n] * new[total - n] for n in range(min(total, len(still) - 1) + 1)) for total in range(count)]
