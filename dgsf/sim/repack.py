"""A slow and better plan of a large batch: when all tasks are known beforehand, the fewest GPU hours that are found.

`core.placement.plan` settles a batch in milliseconds and goes on; this one takes minutes and comes back to every
decision: some tasks that are near in time are taken out of a few GPUs and put back in another order, and the result
is kept if it is better, or by chance while the search is hot (ruin and recreate, with annealing).  For yardsticks and
for schedules that are known days ahead.  The same seed gives the same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dgsf.core.placement.pieces import Interval
from dgsf.core.placement.plan import time_in_use
from dgsf.sim.repack_kernel import WHOLE, Batch, Layout, Whole, anneal, first_fit, put

ROUNDS = 40_000_000
MOST_GPUS = 64  # a set of GPUs is a machine word
SPARE_GPUS = 2  # more than first fit needs, to turn round in
TICK = 1e-3  # the finest time that is told apart, in the unit of the tasks' times
CHUNK = 200_000  # rounds between two reports
WARM, COLD = 0.8, 0.006  # temperatures, in mean durations
STRETCHES = 10  # in a mean duration

Report = Callable[[int, int, float], None]  # rounds done, of how many, the best time so far


def repack(
    tasks: Sequence[Interval], rounds: int = ROUNDS, seed: int = 1, report: Report | None = None
) -> tuple[list[int], float]:
    """The GPU of each task, and the time that GPUs are in use; shares are thousandths of a GPU."""
    if not tasks:
        return [], 0.0
    batch = _batch(tasks)
    layout = _first_fit(batch)
    best = layout.gpu.copy()
    state = np.array([0x9E3779B97F4A7C15 * (2 * seed + 1) & 0xFFFFFFFFFFFFFFFF], np.uint64)
    now = np.full(2, _ticks_in_use(tasks, best), np.int64)
    done = 0
    for step, warm, cold in _cooling(rounds, batch.mean):
        anneal(batch, layout, best, state, step, warm, cold, now)
        done += step
        if report is not None:
            report(done, rounds, now[1] * TICK)
    gpus = best.tolist()
    return gpus, time_in_use(tasks, gpus)


def _cooling(rounds: int, mean: float) -> Iterator[tuple[int, float, float]]:
    """Steps of the search with the temperatures at their beginnings and ends."""
    for begin in range(0, rounds, CHUNK):
        end = min(begin + CHUNK, rounds)
        yield end - begin, *(mean * WARM * (COLD / WARM) ** (at / rounds) for at in (begin, end))


def _batch(tasks: Sequence[Interval]) -> Batch:
    start, end = (np.array([round(task[at] / TICK) for task in tasks], np.int64) for at in (0, 1))
    start, end = start - start.min(), end - start.min()
    share = np.array([task[2] for task in tasks], np.uint16)
    if (share > WHOLE).any() or (end <= start).any():
        raise ValueError(f"a task needs a share of at most {WHOLE} and must take at least {TICK:g}")
    cuts = np.unique(np.concatenate([start, end]))
    mean = float((end - start).mean())
    stretch = max(1, int(mean / STRETCHES))
    at, held = _stretches(start, end, stretch)
    first, last = np.searchsorted(cuts, start), np.searchsorted(cuts, end)
    return Batch(first, last, share, start, end, np.diff(cuts), at, held, stretch, mean)


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
    for task in np.argsort(batch.start, kind="stable").tolist():
        gpu = first_fit(batch, layout, task)
        if gpu < 0:
            raise ValueError(f"more than {MOST_GPUS} GPUs would be needed at once")
        put(batch, layout, task, gpu)
    used = min(int(layout.gpu.max()) + 1 + SPARE_GPUS, MOST_GPUS)
    return Layout(layout.gpu, np.ascontiguousarray(layout.load[:used]))


def _ticks_in_use(tasks: Sequence[Interval], gpus: Whole) -> int:
    whole = [(round(start / TICK), round(end / TICK), share) for start, end, share in tasks]
    return int(time_in_use(whole, gpus.tolist()))
