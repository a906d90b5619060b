"""What room on a shared device is worth, from the sizes that are asked for.

The fewest devices that hold all partial requests (cutting stock) give each size a price, and so each amount of room
the price of the best set of sizes that fills it.  Taking a size from room whose price falls by more than the size's
own is waste.  Solved exactly by column generation on a dense basis: there are a few dozen sizes at most.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

import numpy as np

from dgsf.core.placement.model import WHOLE
from dgsf.core.placement.pool import Floats, Ints

ROUNDS = 400
TINY = 1e-9


@lru_cache(maxsize=64)
def _cached(sizes: tuple[tuple[int, int], ...]) -> Floats:
    unit = gcd(*(size for size, _ in sizes))
    size = np.array([each // unit for each, _ in sizes], dtype=np.int64)
    wanted = np.array([count for _, count in sizes], dtype=np.float64)
    whole = WHOLE // unit
    values = _best_fill(size, _size_prices(size, wanted, whole), whole)[0]
    prices: Floats = values[np.arange(WHOLE + 1) // unit]
    return prices


def room_prices(sizes: tuple[tuple[int, int], ...]) -> Floats:
    """For every amount of room from 0 to a whole device, its price; a whole device is worth 1.

    `sizes` are (share, how often it is asked for), the shares below a whole device.
    """
    return _cached(sizes) if sizes else np.arange(WHOLE + 1) / WHOLE


def _size_prices(size: Ints, wanted: Floats, whole: int) -> Floats:
    """The dual prices of 'fewest devices that hold all of these'."""
    basis = np.diag((whole // size).astype(np.float64))  # a column is a pattern: how many of each size
    for _ in range(ROUNDS):
        prices = np.asarray(np.linalg.solve(basis.T, np.ones(len(size))), dtype=np.float64)
        values, chosen = _best_fill(size, prices, whole)
        if values[whole] <= 1 + TINY:
            break
        pattern = _pattern(size, chosen, whole)
        used, entering = np.linalg.solve(basis, wanted), np.linalg.solve(basis, pattern)
        ratios = np.where(entering > TINY, used / np.maximum(entering, TINY), np.inf)
        basis[:, int(ratios.argmin())] = pattern
    return np.maximum(prices, 0.0)


def _best_fill(size: Ints, prices: Floats, whole: int) -> tuple[Floats, Ints]:
    """The best value of sizes that fit into each room, and the size taken last (-1: none)."""
    values = np.zeros(whole + 1)
    chosen = np.full(whole + 1, -1, dtype=np.int64)
    for room in range(int(size.min()), whole + 1):
        fits = size <= room
        with_it = np.where(fits, values[room - np.where(fits, size, 0)] + prices, -1.0)
        best = int(with_it.argmax())
        values[room] = values[room - 1]
        if with_it[best] > values[room] + TINY:
            values[room], chosen[room] = with_it[best], best
    return values, chosen


def _pattern(size: Ints, chosen: Ints, whole: int) -> Floats:
    pattern = np.zeros(len(size))
    room = whole
    while room > 0:
        best = int(chosen[room])
        if best < 0:
            room -= 1
        else:
            pattern[best] += 1
            room -= int(size[best])
    return pattern
