"""How soon each instance beyond those that run is expected to be used: the rates of all, ranked when that is asked.

Most functions are idle and have a few rates in a row of a table; those that are busy, regular or crowded are listed one
by one.  Tables make it cheap to expect thousands of functions several times a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dgsf.core.arrivals import Floats, Key


class Expectation:
    """The rates of all levels that are not running now, highest first, as of when they could be loaded."""

    def __init__(
        self,
        functions: Sequence[str],
        rows: Mapping[str, int],
        later: Floats,
        soon: Floats,
        listed: Sequence[tuple[float, Key]] = (),
        listed_soon: Mapping[str, Mapping[int, float]] | None = None,
    ) -> None:
        """`later`: if loaded now, `soon`: if there already; a row of levels from 1 on for each function, 0: never."""
        self._functions = functions
        self._rows = rows
        self._soon = soon
        self._listed = listed
        self._listed_soon = listed_soon or {}
        self._levels = later.shape[1]
        self._tabled = later.size
        rates = np.concatenate([later.ravel(), np.array([rate for rate, _ in listed], dtype=np.float64)])
        order: NDArray[np.intp] = np.argsort(rates, kind="stable")[::-1]
        self._order = order[: np.count_nonzero(rates)]
        self._rates = rates[self._order]

    def ranked(self) -> Iterator[tuple[float, Key]]:
        """Rates and whose they are, highest first."""
        for rate, index in zip(self._rates, self._order, strict=True):
            yield float(rate), self._key(int(index))

    def _key(self, index: int) -> Key:
        if index >= self._tabled:
            return self._listed[index - self._tabled][1]
        row, level = divmod(index, self._levels)
        return self._functions[row], level + 1

    def held(self, function: str, level: int) -> float:
        """The rate of an instance that needs no load."""
        if function in self._listed_soon:
            return self._listed_soon[function].get(level, 0.0)
        row = self._rows.get(function)
        return float(self._soon[row, level - 1]) if row is not None and level <= self._levels else 0.0

    def band(self, low: int, high: int) -> float:
        """The summed rate of the places `low` to `high`."""
        return float(self._rates[max(0, low) : max(0, high)].sum())
