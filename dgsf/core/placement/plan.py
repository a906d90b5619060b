"""Plans a batch: when tasks and their times are known beforehand, which GPU each goes to for the fewest GPU hours.

Tasks are put one by one, each where it adds least to the time that GPUs are in use, in several orders; the best is
taken.  Then again and again a few tasks that overlap are taken out and put back in another order; what is a little
worse is accepted too, less and less of it, and the best plan is kept.  For schedules and reservations, and the fair
comparison with an optimum that also knows everything; single calls are placed as they come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from dgsf.core.placement.board import Board, Interval
from dgsf.core.placement.sliceboard import SliceBoard, Slicing

ROUNDS = 150
ORDERS = 5
SCATTERED = 0.25  # how often tasks are taken out at random, instead of all tasks of two GPUs
TAKEN_OUT = 10
NEIGHBOURS = 12  # tasks that start before and after
BLIND = 0.03  # probability that a GPU is overlooked
WORSE = 0.02  # of the cost, accepted in the first round
SAME = 1e-9
Rank = Callable[[int], int]


def plan(
    tasks: Sequence[Interval], random: Random, rounds: int = ROUNDS, slicing: Slicing | None = None
) -> tuple[list[int], float]:
    """The GPU of each task, and the time that GPUs are in use, in the unit of the tasks' times.

    With `slicing`, tasks sit in slices that belong to one owner.
    """
    if not tasks:
        return [], 0.0
    board, ranks = _first(tasks, random, slicing)
    best, chosen = board.cost, board.gpu[:]
    current, allowed = best, WORSE * best
    neighbours = _Neighbours(tasks, board.span)
    for done in range(rounds):
        kept = board.keep()
        _try(board, neighbours, ranks, random)
        if board.cost > current + allowed * (1 - done / rounds) * random.random() + SAME:
            board.bring_back(kept)
            continue
        current = board.cost
        if current < best - SAME:
            best, chosen = current, board.gpu[:]
    return chosen, time_in_use(tasks, chosen)


def _first(tasks: Sequence[Interval], random: Random, slicing: Slicing | None) -> tuple[Board, list[Rank]]:
    """The best of the plans that put all tasks in one of the orders."""
    best: Board | None = None
    ranks: list[Rank] = []
    for number in range(ORDERS):
        board = Board(tasks) if slicing is None else SliceBoard(tasks, slicing)
        ranks = ranks or _ranks(tasks, board.work)
        for task in sorted(range(len(tasks)), key=ranks[number]):
            board.put(task, random, 0.0)
        if best is None or board.cost < best.cost:
            best = board
    assert best is not None
    return best, ranks


def _try(board: Board, neighbours: _Neighbours, ranks: Sequence[Rank], random: Random) -> None:
    """Take a few tasks out that overlap, put them back in another order."""
    task = int(random.random() * len(board.gpu))
    near = neighbours.of(task)
    if random.random() < SCATTERED or len(near) < 3:
        out = random.sample(near, min(2 + int(random.random() * TAKEN_OUT), len(near)))
    else:
        out = board.related(task, near, neighbours.around(task), random)
    out = board.with_dependents(out)
    for other in out:
        board.take(other)
    if random.random() < 0.5:
        out = board.put_together(out, random)
    order = int(random.random() * (ORDERS + 1))
    if order < ORDERS:
        out.sort(key=ranks[order])
    else:
        random.shuffle(out)
    for other in out:
        board.put(other, random, BLIND)


class _Neighbours:
    """The tasks that start near a task and overlap with it, itself included."""

    def __init__(self, tasks: Sequence[Interval], spans: Sequence[int]) -> None:
        self._by_start = sorted(range(len(tasks)), key=lambda task: tasks[task][0])
        self._turn = {task: turn for turn, task in enumerate(self._by_start)}
        self._spans = spans
        self._known: dict[int, list[int]] = {}

    def of(self, task: int) -> list[int]:
        known = self._known.get(task)
        if known is None:
            span = self._spans[task]
            known = self._known[task] = [other for other in self.around(task) if self._spans[other] & span]
        return known

    def around(self, task: int) -> list[int]:
        turn = self._turn[task]
        return self._by_start[max(0, turn - NEIGHBOURS) : turn + NEIGHBOURS + 1]


def _ranks(tasks: Sequence[Interval], work: Sequence[float]) -> list[Rank]:
    """Orders in which tasks are put: longest, largest, earliest, most work, latest end first."""
    keys: list[Callable[[int], float]] = [
        lambda task: tasks[task][0] - tasks[task][1],
        lambda task: -tasks[task][2],
        lambda task: tasks[task][0],
        lambda task: -work[task],
        lambda task: -tasks[task][1],
    ]
    ranks: list[Rank] = []
    for key in keys:
        turn = [0] * len(tasks)
        for number, task in enumerate(sorted(range(len(tasks)), key=key)):
            turn[task] = number
        ranks.append(turn.__getitem__)
    return ranks


def time_in_use(tasks: Sequence[Interval], gpus: Sequence[int]) -> float:
    """The time in which each GPU holds any task, over all GPUs."""
    total = 0.0
    until: dict[int, float] = {}
    for task in sorted(range(len(tasks)), key=lambda task: tasks[task][0]):
        start, end, _ = tasks[task]
        busy = until.get(gpus[task], start)
        total += max(0.0, end - max(start, busy))
        until[gpus[task]] = max(busy, end)
    return total
