"""How many GPUs are needed in each piece of time, whoever plans: below this no plan can be.

All shares in use rounded up to whole GPUs, or the tasks that take more than half of one each, if those are more.  With
slices, the shares of each owner are first rounded up to what slices can add up to.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from dgsf.core.placement.holdings import Slicing
from dgsf.core.placement.model import WHOLE
from dgsf.core.placement.pieces import Interval, Pieces


def gpus_needed(tasks: Sequence[Interval], pieces: Pieces, slicing: Slicing | None) -> list[int]:
    """At least so many GPUs are in use in each piece."""
    large = [0] * len(pieces)
    for (first, last), (_, _, share) in zip(pieces.ranges, tasks, strict=True):
        if 2 * share > WHOLE:
            for piece in range(first, last):
                large[piece] += 1
    reserved = _shares(tasks, pieces) if slicing is None else _slices(tasks, pieces, slicing)
    return [max(-(-share // WHOLE), count) for share, count in zip(reserved, large, strict=True)]


def levels(needed: Sequence[int]) -> tuple[int, ...]:
    """The pieces in which at least one GPU is needed, at least two, and so on; then none."""
    found = [0] * (max(needed, default=0) + 1)
    for piece, count in enumerate(needed):
        for level in range(count):
            found[level] |= 1 << piece
    return tuple(found)


def _shares(tasks: Sequence[Interval], pieces: Pieces) -> list[int]:
    total = [0] * len(pieces)
    for (first, last), (_, _, share) in zip(pieces.ranges, tasks, strict=True):
        for piece in range(first, last):
            total[piece] += share
    return total


def _slices(tasks: Sequence[Interval], pieces: Pieces, slicing: Slicing) -> list[int]:
    sizes = sorted(set(slicing.sizes))

    @cache
    def least(share: int) -> int:
        """The least sum of slices that holds this share."""
        return min(size + least(share - size) for size in sizes) if share > 0 else 0

    total = [0] * len(pieces)
    for owner in dict.fromkeys(slicing.owners):
        of_owner = [0] * len(pieces)
        for (first, last), (_, _, share), whose in zip(pieces.ranges, tasks, slicing.owners, strict=True):
            if whose == owner:
                for piece in range(first, last):
                    of_owner[piece] += share
        total = [one + least(share) for one, share in zip(total, of_owner, strict=True)]
    return total
