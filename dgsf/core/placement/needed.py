"""How many GPUs are needed in each piece of time, whoever plans: below this no plan can be.

All shares in use rounded up to whole GPUs, or the tasks that take more than half of one each, if those are more.  With
slices, the shares of each owner are first rounded up to what slices can add up to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
    """The shares in use in each piece."""
    total = [0] * len(pieces)
    for (first, last), (_, _, share) in zip(pieces.ranges, tasks, strict=True):
        for piece in range(first, last):
            total[piece] += share
    return total


def _slices(tasks: Sequence[Interval], pieces: Pieces, slicing: Slicing) -> list[int]:
    """The same, of each owner rounded up."""
    asked: dict[str, list[int]] = {owner: [0] * len(pieces) for owner in slicing.owners}
    for (first, last), (_, _, share), owner in zip(pieces.ranges, tasks, slicing.owners, strict=True):
        of_owner = asked[owner]
        for piece in range(first, last):
            of_owner[piece] += share
    most = max((share for of_owner in asked.values() for share in of_owner), default=0)
    sums = _sums(set(slicing.sizes), most + max(slicing.sizes, default=0))
    total = [0] * len(pieces)
    for of_owner in asked.values():
        for piece, share in enumerate(of_owner):
            if share:
                larger = sums >> share
                total[piece] += share + (larger & -larger).bit_length() - 1
    return total


def _sums(sizes: Iterable[int], most: int) -> int:
    """What slices of these sizes can add up to, as bits up to about this."""
    sums = 1
    for size in sizes:
        times = size
        while times <= most:  # so many copies, and twice as many
            sums |= sums << times
            times *= 2
        sums &= (2 << most) - 1
    return sums
