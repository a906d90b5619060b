"""The better plan of a batch with free shares: when all tasks are known beforehand, the fewest GPU hours it finds.

`core.placement.plan` settles a batch once, also with slices; this one comes back to every decision: some tasks that
are near in time are taken out of a few GPUs and put back in another order, sometimes after two GPUs have exchanged what
they hold from a moment on, and the result is kept if it is better, or by chance while the search is hot (ruin and
recreate, with annealing).  By default tens of tasks take a quarter of a second and some thousands a minute.  The same
seed gives the same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from math import ceil, gcd

import numpy as np

from dgsf.core.placement.pieces import Interval
from dgsf.core.placement.plan import time_in_use
from dgsf.errors import UsageError
from dgsf.sim.repack_kernel import MOST_REMOVED, Scratch, anneal
from dgsf.sim.repack_load import ALL, Batch, Layout, Whole, Words, fill

ROUNDS_PER_TASK = 3500
WHOLE = 1000  # the share of a whole GPU
MOST_GPUS = 64  # a set of GPUs is a machine word
SPARE_GPUS = 2  # more than first fit needs, to turn round in
TICKS, MOST_TICKS = 2**24, 2**50  # of the clock by which plans are compared: in a mean duration, and at most in all
CHUNK = 200_000  # rounds between two reports
WARM, COLD = 0.2, 0.012  # temperatures, in mean durations
STRETCHES = 10  # in a mean duration
STRETCHES_PER_TASK = 10  # at most: a few tasks in a long time need no more

Report = Callable[[int, int, float], None]  # rounds done, of how many, the best time so far


def repack(
    tasks: Sequence[Interval], rounds: int | None = None, seed: int = 1, report: Report | None = None
) -> tuple[list[int], float]:
    """The GPU of each task, and the time that GPUs are in use; shares are thousandths of a GPU."""
    return Repacking(tasks).run(rounds, seed, report) if tasks else ([], 0.0)


class Repacking:
    """A batch and its first plan; UsageError if there is none."""

    def __init__(self, tasks: Sequence[Interval]) -> None:
        for number, (start, end, share) in enumerate(tasks, start=1):
            if not (0 < share <= WHOLE and start < end < float("inf") and end - start < float("inf")):
                took = f"a share of {share} from {start:g} to {end:g}"
                raise UsageError(f"task {number} cannot be planned: it takes {took}; shares go up to {WHOLE}")
        self._tasks = tasks
        self._order = sorted(range(len(tasks)), key=lambda task: tasks[task][0])
        self._tick = _tick(tasks)
        self._batch = _batch([tasks[task] for task in self._order], self._tick)
        self._layout, self._in_use = _first_fit(self._batch)

    def run(self, rounds: int | None = None, seed: int = 1, report: Report | None = None) -> tuple[list[int], float]:
        """As `repack`; the next run goes on from where this one ended."""
        batch, layout, room = self._batch, self._layout, _room(len(self._tasks))
        best = layout.gpu.copy()
        state = np.array([0x9E3779B97F4A7C15 * (2 * seed + 1) & 0xFFFFFFFFFFFFFFFF], np.uint64)
        now = np.full(2, self._in_use, np.int64)
        done, rounds = 0, ROUNDS_PER_TASK * len(self._tasks) if rounds is None else rounds
        for step, warm, cold in _cooling(rounds, batch.mean):
            anneal(batch, layout, best, room, state, step, warm, cold, now)
            done += step
            if report is not None:
                report(done, rounds, now[1] * self._tick)
        self._in_use = int(now[0])
        gpus = [0] * len(self._tasks)
        for task, gpu in zip(self._order, best.tolist(), strict=True):
            gpus[task] = gpu
        return gpus, time_in_use(self._tasks, gpus)


def _cooling(rounds: int, mean: float) -> Iterator[tuple[int, float, float]]:
    """Steps of the search with the temperatures at their beginnings and ends."""
    for begin in range(0, rounds, CHUNK):
        end = min(begin + CHUNK, rounds)
        yield end - begin, *(mean * WARM * (COLD / WARM) ** (at / rounds) for at in (begin, end))


def _tick(tasks: Sequence[Interval]) -> float:
    """The length of a tick, in the unit of the tasks' times."""
    span = max(end for _, end, _ in tasks) - min(start for start, _, _ in tasks)
    if not span < float("inf"):
        raise UsageError(
            "these tasks cannot be planned: between the first and the last is more time than can be counted"
        )
    mean = sum((end - start) / len(tasks) for start, end, _ in tasks)
    return max(mean / TICKS, span / MOST_TICKS)


def _batch(tasks: Sequence[Interval], tick: float) -> Batch:
    """Cut at the very times, so that tasks which overlap by however little do; only lengths are rounded."""
    begins, ends = (np.array([task[at] for task in tasks], float) for at in (0, 1))
    cuts = np.unique(np.concatenate([begins, ends]))
    start = np.rint((begins - cuts[0]) / tick).astype(np.int64)
    end = np.maximum(np.rint((ends - cuts[0]) / tick).astype(np.int64), start + 1)
    mean = float((end - start).mean())
    stretch = max(1, int(mean / STRETCHES), int(end.max()) // (STRETCHES_PER_TASK * len(tasks)))
    first, last = np.searchsorted(cuts, begins), np.searchsorted(cuts, ends)
    shares = [ceil(task[2]) for task in tasks]
    unit = reduce(gcd, shares, WHOLE)
    lane = 3 if WHOLE // unit < 1 << 7 else 4
    lanes, bits = 64 >> lane, 1 << lane
    ones = sum(1 << place for place in range(0, 64, bits))
    pieces = -(-(len(cuts) - 1) // lanes) * lanes
    at = np.full(pieces + 1, cuts[-1])
    at[: len(cuts)] = cuts
    return Batch(
        first,
        last,
        *_words(first, last, lanes, bits),
        np.array([share // unit * ones for share in shares], np.uint64),
        np.array(shares) / WHOLE,
        start,
        end,
        np.rint((at - cuts[0]) / tick).astype(np.int64),
        np.searchsorted(first, np.arange(pieces + 1)),
        *_stretches(start, end, stretch),
        stretch,
        mean,
        lane,
        np.uint64(ones << bits - 1),
        np.uint64(ones * ((1 << bits - 1) - 1 - WHOLE // unit)),
    )


def _words(first: Whole, last: Whole, lanes: int, bits: int) -> tuple[Whole, Whole, Words, Words]:
    """The first and the last word of each task, and its lanes in them."""
    low, high = first // lanes, (last - 1) // lanes
    low_mask = ALL << (first % lanes * bits).astype(np.uint64)
    high_mask = ALL >> (64 - ((last - 1) % lanes + 1) * bits).astype(np.uint64)
    both = np.where(low == high, low_mask & high_mask, ALL)
    return low, high, low_mask & both, high_mask & both


def _stretches(start: Whole, end: Whole, stretch: int) -> tuple[Whole, Whole, Whole]:
    """The first task that starts in or after each stretch of time, and those that stand there from before."""
    there: list[list[int]] = [[] for _ in range(int(end.max()) // stretch + 1)]
    for task, (begins, ends) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        for place in range(begins // stretch + 1, (ends - 1) // stretch + 1):
            there[place].append(task)
    opening = np.searchsorted(start, np.arange(len(there)) * stretch)
    at = np.cumsum([0, *map(len, there)], dtype=np.int64)
    return opening, at, np.array([task for tasks in there for task in tasks], np.int64)


def _first_fit(batch: Batch) -> tuple[Layout, int]:
    """In the order of their starts, with some GPUs more than that takes; and the time in use."""
    words = int(batch.high.max()) + 1
    gpu, load = np.zeros(len(batch.first), np.uint8), np.zeros((MOST_GPUS, words), np.uint64)
    in_use = fill(batch, Layout(gpu, load, active := np.zeros(words, np.uint64)))
    if in_use < 0:
        raise UsageError(f"more than {MOST_GPUS} GPUs would be needed at once; a plan takes no more")
    used = min(int(gpu.max()) + 1 + SPARE_GPUS, MOST_GPUS)
    return Layout(gpu, np.ascontiguousarray(load[:used]), active), in_use


def _room(tasks: int) -> Scratch:
    pool, chosen, gpus = (np.empty(count, np.int64) for count in (tasks, MOST_REMOVED + 1, MOST_REMOVED + 1))
    return Scratch(pool, chosen, gpus, np.empty(MOST_REMOVED + 1), np.zeros(3, np.int64))
