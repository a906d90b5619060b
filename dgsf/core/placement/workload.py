"""What tends to be asked for: shapes of requests by how often they come, given beforehand or learned from arrivals.

Fragmentation is measured against it: room that no popular shape can use is waste.  Learned counts are taken over
when they have grown by a quarter, so that kept scores stay good for a while.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dgsf.core.placement.model import WHOLE, Request
from dgsf.core.placement.pool import Floats, Ints

POPULAR = 0.95  # the most common shapes that together are this part of all requests
GROWTH = 1.25
FIRST = 32  # learned counts are first used after so many arrivals
Shape = tuple[tuple[str, ...], int, int, int]  # types, cpu, share of one device, devices


def shape_of(request: Request) -> Shape:
    whole = request.devices > 0 or request.share == WHOLE
    share = WHOLE if whole else (request.share or 0)
    return (request.types, request.cpu_milli, share, max(1, request.devices) if share else 0)


@dataclass(frozen=True, slots=True)
class Popular:
    """The popular shapes as arrays, most popular first, their weights adding up to one."""

    types: tuple[tuple[str, ...], ...]
    weight: Floats
    cpu: Ints
    share: Ints
    devices: Ints
    kappa: float  # processor asked per whole device asked, over everything
    shared: tuple[tuple[int, int], ...]  # (share, how often) of all requests for a part of one device


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
            weight=np.array([count / covered for _, count in chosen], dtype=np.float64),
            cpu=np.array([shape[1] for shape, _ in chosen], dtype=np.int64),
            share=np.array([shape[2] for shape, _ in chosen], dtype=np.int64),
            devices=np.array([shape[3] for shape, _ in chosen], dtype=np.int64),
            kappa=self._kappa(),
            shared=self._shared(),
        )

    def _kappa(self) -> float:
        with_device = [(shape, count) for shape, count in self.counts.items() if shape[2]]
        asked = sum(shape[2] * shape[3] * count for shape, count in with_device)
        return sum(shape[1] * count for shape, count in with_device) * WHOLE / asked if asked else 0.0

    def _shared(self) -> tuple[tuple[int, int], ...]:
        sizes: dict[int, int] = {}
        for shape, count in self.counts.items():
            if 0 < shape[2] < WHOLE:
                sizes[shape[2]] = sizes.get(shape[2], 0) + count
        return tuple(sorted(sizes.items()))
