"""Plans a batch: when tasks and their times are known beforehand, which GPU each goes to for the fewest GPU hours.

Longest tasks first, each where it adds least to the time that GPUs are in use; then again and again a few related
tasks are taken out and put back, and the better plan is kept.  For schedules and reservations, and the fair
comparison with an optimum that also knows everything; single calls are placed as they come.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np

from dgsf.core.placement.model import WHOLE
from dgsf.core.placement.pool import Floats

Interval = tuple[float, float, int]  # start, end, thousandths of one GPU
TAKEN_OUT = 10
NEIGHBOURS = 12


class _Board:
    """Loads of GPUs over the pieces of time between starts and ends."""

    def __init__(self, tasks: Sequence[Interval], gpus: int) -> None:
        times = np.unique(np.array([time for task in tasks for time in task[:2]], dtype=np.float64))
        self.lengths: Floats = np.diff(times)
        self.tight: Floats = 1e-7 * self.lengths
        self.first: list[int] = np.searchsorted(times, [task[0] for task in tasks]).tolist()
        self.last: list[int] = np.searchsorted(times, [task[1] for task in tasks]).tolist()
        self.share = [task[2] for task in tasks]
        self.load: Floats = np.zeros((gpus, len(self.lengths)))
        self.unpaid: Floats = np.tile(self.lengths, (gpus, 1))  # length of each piece in which the GPU is idle
        self.gpu = [-1] * len(tasks)

    def put(self, task: int) -> None:
        """Where it adds least; among equals where the GPU is left fullest.  The last GPU is always an empty one."""
        span = slice(self.first[task], self.last[task])
        part, share = self.load[:, span], self.share[task]
        added = self.unpaid[:, span].sum(axis=1)
        added -= part @ self.tight[span]
        added[part.max(axis=1) > WHOLE - share] = np.inf
        gpu = int(added.argmin())
        self.gpu[task] = gpu
        part[gpu] += share
        self.unpaid[gpu, span] = 0.0
        if gpu == len(self.load) - 1:
            self.load = np.vstack([self.load, np.zeros_like(self.load[:1])])
            self.unpaid = np.vstack([self.unpaid, self.lengths])

    def take(self, task: int) -> None:
        gpu, span = self.gpu[task], slice(self.first[task], self.last[task])
        self.load[gpu, span] -= self.share[task]
        self.unpaid[gpu, span] = self.lengths[span] * (self.load[gpu, span] == 0)

    def cost(self) -> float:
        return float(len(self.load) * self.lengths.sum() - self.unpaid.sum())


def plan(tasks: Sequence[Interval], random: Random, rounds: int = 12) -> tuple[list[int], float]:
    """The GPU of each task, and the time that GPUs are in use, in the unit of the tasks' times."""
    if not tasks:
        return [], 0.0
    board = _Board(tasks, 2)
    by_length = sorted(range(len(tasks)), key=lambda i: tasks[i][0] - tasks[i][1])
    for task in by_length:
        board.put(task)
    rank = {task: position for position, task in enumerate(by_length)}
    by_start = sorted(range(len(tasks)), key=lambda i: tasks[i][0])
    best = board.cost()
    for _ in range(rounds):
        best = _improve(board, best, rank, by_start, random)
    return board.gpu, best


def _improve(board: _Board, best: float, rank: dict[int, int], by_start: Sequence[int], random: Random) -> float:
    """Take a few tasks out that start near each other, put them back; undo what is worse."""
    near = random.randrange(len(by_start))
    window = by_start[max(0, near - NEIGHBOURS) : near + NEIGHBOURS]
    out = random.sample(window, min(TAKEN_OUT, len(window)))
    kept = (board.load.copy(), board.unpaid.copy(), board.gpu.copy())
    for task in out:
        board.take(task)
    if random.random() < 0.5:
        out.sort(key=rank.__getitem__)
    for task in out:
        board.put(task)
    cost = board.cost()
    if cost <= best + 1e-6:
        return cost
    board.load, board.unpaid, board.gpu = kept
    return best
