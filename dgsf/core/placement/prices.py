"""What room on a shared device is worth, from the sizes that are asked for.

The fewest devices that hold all partial requests (cutting stock) give each size a price, and so each amount of room
the price of the best set of sizes that fills it.  Taking a size from room whose price falls by more than the size's
own is waste.  Solved exactly by column generation on a dense basis, which is fast for a few dozen sizes; where more
are asked for, neighbours are rounded up to one.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

import numpy as np

from dgsf.core.placement.model import WHOLE
from dgsf.core.placement.pool import Floats, Ints

ROUNDS = 400
TINY = 1e-9
MOST_SIZES = 32  # that are priced apart: the time grows with the square and more,
COARSE = 10  # and with how finely they differ
Sizes = tuple[tuple[int, int], ...]  # (share, how often it is asked for), by share


@lru_cache(maxsize=64)
def _cached(sizes: Sizes) -> Floats:
    sizes = _merged(sizes)
    unit = gcd(*(size for size, _ in sizes))
    size = np.array([each // unit for each, _ in sizes], dtype=np.int64)
    wanted = np.array([count for _, count in sizes], dtype=np.float64)
    whole = WHOLE // unit
    values = _best_fill(size, _size_prices(size, wanted, whole), whole)[0]
    prices: Floats = values[np.arange(WHOLE + 1) // unit]
    return prices


def room_prices(sizes: Sizes) -> Floats:
    """For every amount of room from 0 to a whole device, its price; a whole device is worth 1.

    `sizes` are the shares below a whole device.
    """
    return _cached(sizes) if sizes else np.arange(WHOLE + 1) / WHOLE


def _merged(sizes: Sizes) -> Sizes:
    """At most `MOST_SIZES`, rounded up; where they must be fewer still, each is for about as many requests."""
    if len(sizes) <= MOST_SIZES:
        return sizes
    rounded: dict[int, int] = {}
    for size, count in sizes:
        up = -(-size // COARSE) * COARSE
        rounded[up] = rounded.get(up, 0) + count
    return _by_weight(rounded) if len(rounded) > MOST_SIZES else tuple(rounded.items())


def _by_weight(sizes: dict[int, int]) -> Sizes:
    total, before = sum(sizes.values()), 0
    merged: dict[int, tuple[int, int]] = {}
    for size, count in sizes.items():
        place = (2 * before + count) * MOST_SIZES // (2 * total)  # where the middle one of its requests is among all
        merged[place] = (size, merged.get(place, (0, 0))[1] + count)
        before += count
    return tuple(merged.values())


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
    """The best value of sizes, which come in order, that fit into each room, and the size taken last (-1: none)."""
    values, chosen = [0.0] * (whole + 1), [-1] * (whole + 1)
    sizes = list(enumerate(zip(size.tolist(), prices.tolist(), strict=True)))
    for room in range(1, whole + 1):  # plain numbers: arrays are slower for so few sizes
        best, most = -1, -1.0
        for place, (each, price) in sizes:
            if each > room:
                break
            with_it = values[room - each] + price
            if with_it > most:
                best, most = place, with_it
        values[room] = values[room - 1]
        if most > values[room] + TINY:
            values[room], chosen[room] = most, best
    return np.array(values), np.array(chosen, dtype=np.int64)


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
