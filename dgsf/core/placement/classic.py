"""The policies that everybody compares with: random, best, worst fit, dot product, GPU packing, GPU clustering.

Scores are whole numbers from 0 to 100, as cluster schedulers make them: near-ties become ties, and ties go to the
first row.  Processor and devices are measured against one large node, not against each node's own size.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar

import numpy as np

from dgsf.core.placement.model import WHOLE
from dgsf.core.placement.need import Need
from dgsf.core.placement.policy import Policy, Tightest
from dgsf.core.placement.pool import Floats, Ints, Pool

LARGE_CPU = 128_000  # thousandths of a core on the largest common node
LARGE_GPU = 8 * WHOLE


class RandomFit(Policy):
    """Any row with room, any device in it with room."""

    name: ClassVar[str] = "random"

    def pick(self, values: Floats, random: Random) -> int:
        best = np.flatnonzero(values == values.max())
        return int(best[random.randrange(len(best))])

    def column(self, pool: Pool, need: Need, row: int, random: Random) -> int:
        able = np.flatnonzero(need.columns(pool, np.array([row]))[0])
        return int(able[random.randrange(len(able))])


def asked(need: Need, rows: Ints | slice) -> Ints:
    """Thousandths of devices that the request takes in each row."""
    taken: Ints = need.share[rows] * need.devices
    return taken


class BestFit(Tightest):
    """The row that is left fullest, processor and devices counted alike."""

    name: ClassVar[str] = "best_fit"

    def score(self, pool: Pool, need: Need, rows: Ints) -> tuple[Floats, Ints | None]:
        cpu = (np.minimum(pool.cpu[rows], LARGE_CPU) - need.request.cpu_milli) / LARGE_CPU
        gpu = (pool.room[rows].sum(axis=1) - asked(need, rows)) / LARGE_GPU
        return np.trunc(100 * (1 - 0.5 * cpu - 0.5 * gpu)), None


class WorstFit(BestFit):
    """The row that is left emptiest: spreads the load."""

    name: ClassVar[str] = "worst_fit"

    def score(self, pool: Pool, need: Need, rows: Ints) -> tuple[Floats, Ints | None]:
        values, columns = super().score(pool, need, rows)
        return -values, columns

    def column(self, pool: Pool, need: Need, row: int, random: Random) -> int:
        able = need.columns(pool, np.array([row]))[0]
        return int(np.where(able, pool.room[row], -1).argmax())


class DotProduct(Tightest):
    """The row whose remainder is least aligned with what is asked."""

    name: ClassVar[str] = "dot_product"

    def score(self, pool: Pool, need: Need, rows: Ints) -> tuple[Floats, Ints | None]:
        cpu = np.minimum(pool.cpu[rows], LARGE_CPU) / LARGE_CPU * (need.request.cpu_milli / LARGE_CPU)
        gpu = pool.room[rows].sum(axis=1) / LARGE_GPU * (asked(need, rows) / LARGE_GPU)
        return np.trunc(100 * (1 - (cpu + gpu) / 2)), None


class GpuPacking(Tightest):
    """First devices in use, then free devices of nodes in use, then idle nodes."""

    name: ClassVar[str] = "gpu_packing"

    def score(self, pool: Pool, need: Need, rows: Ints) -> tuple[Floats, Ints | None]:
        if not need.devices:
            return np.zeros(len(rows)), None
        room, there = pool.room[rows], pool.ids[rows] >= 0
        free = ((room == WHOLE) & there).sum(axis=1)
        count = there.sum(axis=1)
        tightest = np.where(room >= need.share[rows, None], room, WHOLE).min(axis=1)
        opened = np.where(tightest < WHOLE, 0, need.devices)
        packed = np.maximum(100 - tightest // 10 // 10, 50)
        values = np.where(opened > 0, np.maximum(50 - opened, 33), packed)
        idle = free == count
        return np.where(idle, np.maximum(33 - count, count), values).astype(np.float64), None


class GpuClustering(Tightest):
    """Keeps tasks of one class (shared, one device, two devices, ...) together on nodes."""

    name: ClassVar[str] = "gpu_clustering"

    def score(self, pool: Pool, need: Need, rows: Ints) -> tuple[Floats, Ints | None]:
        if not need.devices:
            return np.zeros(len(rows)), None
        held = pool.classes[rows] > 0
        several = held.sum(axis=1)
        has = held[:, _class_of(need)]
        bonus = np.select([has & (several == 1), has, several == 0], [75, 50, 25], 0)
        packed = 25 * (LARGE_GPU - pool.room[rows].sum(axis=1)) // LARGE_GPU
        return (packed + bonus).astype(np.float64), None


def _class_of(need: Need) -> int:
    """0: a share of one device, n: n whole devices."""
    return need.devices if need.whole else 0
