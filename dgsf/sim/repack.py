"""A slow and better plan of a large batch: when all tasks are known beforehand, the fewest GPU hours that are found.

`core.placement.plan` settles a batch in milliseconds and goes on; this one takes minutes and comes back to every
decision: some tasks that are near in time are taken out of a few GPUs and put back in another order, and the result
is kept if it is better, or by chance while the search is hot (ruin and recreate, with annealing).  For yardsticks and
for schedules that are known days ahead.  The same seed gives the same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import ceil

import numpy as np

from dgsf.core.placement.pieces import Interval
from dgsf.core.placement.plan import time_in_use
from dgsf.errors import UsageError
from dgsf.sim.repack_kernel import WHOLE, Batch, Layout, Whole, anneal, first_fit, put

ROUNDS = 100_000_000
MOST_GPUS = 64  # a set of GPUs is a machine word
SPARE_GPUS = 2  # more than first fit needs, to turn round in
TICK = 1e-3  # of the clock by which plans are compared, in the unit of the tasks' times
CHUNK = 200_000  # rounds between two reports
WARM, COLD = 0.8, 0.006  # temperatures, in mean durations
STRETCHES = 10  # in a mean duration
STRETCHES_PER_TASK = 10  # at most: a few tasks in a long time need no more

Report = Callable[[int, int, float], None]  # rounds done, of how many, the best time so far


def repack(
    tasks: Sequence[Interval], rounds: int = ROUNDS, seed: int = 1, report: Report | None = None
) -> tuple[list[int], float]:
    """The GPU of each task, and the time that GPUs are in use; shares are thousandths of a GPU."""
    return Repacking(tasks).run(rounds, seed, report) if tasks else ([], 0.0)


class Repacking:
    """A batch and its first plan; UsageError if there is none."""

    def __init__(self, tasks: Sequence[Interval]) -> None:
        for number, (start, end, share) in enumerate(tasks, start=1):
            if not (0 < share <= WHOLE and start < end < float("inf")):
                took = f"a share of {share} from {start:g} to {end:g}"
                raise UsageError(f"task {number} cannot be planned: it takes {took}; shares go up to {WHOLE}")
        self._tasks = tasks
        self._batch = _batch(tasks)
        self._layout = _first_fit(self._batch)

    def run(self, rounds: int, seed: int = 1, report: Report | None = None) -> tuple[list[int], float]:
        """As `repack`; the next run goes on from where this one ended."""
        batch, layout = self._batch, self._layout
        best = layout.gpu.copy()
        state = np.array([0x9E3779B97F4A7C15 * (2 * seed + 1) & 0xFFFFFFFFFFFFFFFF], np.uint64)
        now = np.full(2, _in_use(batch, layout), np.int64)
        done = 0
        for step, warm, cold in _cooling(rounds, batch.mean):
            anneal(batch, layout, best, state, step, warm, cold, now)
            done += step
            if report is not None:
                report(done, rounds, now[1] * TICK)
        gpus = best.tolist()
        return gpus, time_in_use(self._tasks, gpus)


def _cooling(rounds: int, mean: float) -> Iterator[tuple[int, float, float]]:
    """Steps of the search with the temperatures at their beginnings and ends."""
    for begin in range(0, rounds, CHUNK):
        end = min(begin + CHUNK, rounds)
        yield end - begin, *(mean * WARM * (COLD / WARM) ** (at / rounds) for at in (begin, end))


def _batch(tasks: Sequence[Interval]) -> Batch:
    """Cut at the very times, so that tasks which overlap by however little do; only lengths are rounded."""
    begins, ends = (np.array([task[at] for task in tasks], float) for at in (0, 1))
    share = np.array([ceil(task[2]) for task in tasks], np.uint16)
    cuts = np.unique(np.concatenate([begins, ends]))
    start = np.rint((begins - cuts[0]) / TICK).astype(np.int64)
    end = np.maximum(np.rint((ends - cuts[0]) / TICK).astype(np.int64), start + 1)
    mean = float((end - start).mean())
    stretch = max(1, int(mean / STRETCHES), int(end.max()) // (STRETCHES_PER_TASK * len(tasks)))
    at, held = _stretches(start, end, stretch)
    first, last = np.searchsorted(cuts, begins), np.searchsorted(cuts, ends)
    length = np.rint(np.diff(cuts) / TICK).astype(np.int64)
    return Batch(first, last, share, start, end, length, at, held, stretch, mean)


def _stretches(start: Whole, end: Whole, stretch: int) -> tuple[Whole, Whole]:
    """The tasks that are there in each stretch of time, one stretch after the other, and where each begins."""
    there: list[list[int]] = [[] for _ in range(int(end.max()) // stretch + 1)]
    for task, (begins, ends) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        for place in range(begins // stretch, (ends - 1) // stretch + 1):
            there[place].append(task)
    at = np.cumsum([0, *map(len, there)], dtype=np.int64)
    return at, np.array([task for tasks in there for task in tasks], np.int64)


def _first_fit(batch: Batch) -> Layout:
    """In the order of their starts; with some GPUs more than that takes."""
    layout = Layout(np.full(len(batch.first), -1, np.int64), np.zeros((MOST_GPUS, len(batch.length)), np.uint16))
    for task in np.argsort(batch.first, kind="stable").tolist():
        gpu = first_fit(batch, layout, task)
        if gpu < 0:
            raise UsageError(f"more than {MOST_GPUS} GPUs would be needed at once; a plan takes no more")
        put(batch, layout, task, gpu)
    used = min(int(layout.gpu.max()) + 1 + SPARE_GPUS, MOST_GPUS)
    return Layout(layout.gpu, np.ascontiguousarray(layout.load[:used]))


def _in_use(batch: Batch, layout: Layout) -> int:
    return int(((layout.load > 0) * batch.length).sum())
