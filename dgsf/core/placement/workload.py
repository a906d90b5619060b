"""What tends to be asked for: shapes of requests by how often they come, given beforehand or learned from arrivals.

Fragmentation is measured against it: room that no popular shape can use is waste.  How much of a device a slot is
depends on the device, so shapes say that they want one and whoever measures asks by the size of slots.  Learned counts
are taken over when they have grown by a quarter, so that kept scores stay good for a while.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dgsf.core.devices import HOST
from dgsf.core.placement.model import WHOLE, Request
from dgsf.core.placement.pool import Floats, Ints

POPULAR = 0.95  # the most common shapes that together are this part of all requests
GROWTH = 1.25
FIRST = 32  # learned counts are first used after so many arrivals
SLOT = -1  # instead of a share: one slot, whatever part of its device that is
Shape = tuple[tuple[str, ...], int, int, int]  # types, cpu, share of one device or SLOT, devices


def shape_of(request: Request) -> Shape:
    share = _share_of(request)
    return (request.types, request.cpu_milli, share, max(1, request.devices) if share else 0)


def _share_of(request: Request) -> int:
    if request.whole:
        return WHOLE
    if request.share is None:  # a function host has slots and no device
        return 0 if request.types == (HOST,) else SLOT
    return request.share


@dataclass(frozen=True, slots=True)
class Popular:
    """The popular shapes as arrays, most popular first."""

    types: tuple[tuple[str, ...], ...]
    count: Floats  # how often each came: whole numbers, so that sums are exact in whichever order they are made
    cpu: Ints
    share: Ints
    devices: Ints
    asked: tuple[tuple[Shape, int], ...]  # all shapes that take of a device, and how often they came

    def kappa(self, slot: int) -> float:
        """Processor asked per whole device asked, over everything, where slots are this share."""
        asked = sum(_sized(shape, slot) * shape[3] * count for shape, count in self.asked)
        return sum(shape[1] * count for shape, count in self.asked) * WHOLE / asked if asked else 0.0

    def shared(self, slot: int) -> tuple[tuple[int, int], ...]:
        """(share, how often) of all requests for a part of one device, where slots are this share."""
        sizes: dict[int, int] = {}
        for shape, count in self.asked:
            share = _sized(shape, slot)
            if share < WHOLE:
                sizes[share] = sizes.get(share, 0) + count
        return tuple(sorted(sizes.items()))


def _sized(shape: Shape, slot: int) -> int:
    return slot if shape[2] == SLOT else shape[2]


class Workload:
    """Counts of shapes."""

    def __init__(self, requests: Iterable[Request] = ()) -> None:
        self.counts: dict[Shape, int] = {}
        self.total = 0
        self._next = float(FIRST)
        for request in requests:
            self.add(request)

    def add(self, request: Request) -> bool:
        """Count one; True when it is time to look at `popular` again."""
        shape = shape_of(request)
        self.counts[shape] = self.counts.get(shape, 0) + 1
        self.total += 1
        if self.total < self._next:
            return False
        self._next = self.total * GROWTH
        return True

    def popular(self) -> Popular:
        """The popular shapes; equal counts are ordered by when they first came."""
        ordered = sorted(self.counts.items(), key=lambda item: -item[1])
        chosen: list[tuple[Shape, int]] = []
        covered = 0
        for shape, count in ordered:
            chosen.append((shape, count))
            covered += count
            if covered >= POPULAR * self.total:
                break
        return Popular(
            types=tuple(shape[0] for shape, _ in chosen),
            count=np.array([count for _, count in chosen], dtype=np.float64),
            cpu=np.array([shape[1] for shape, _ in chosen], dtype=np.int64),
            share=np.array([shape[2] for shape, _ in chosen], dtype=np.int64),
            devices=np.array([shape[3] for shape, _ in chosen], dtype=np.int64),
            asked=tuple((shape, count) for shape, count in self.counts.items() if shape[2]),
        )
