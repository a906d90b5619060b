"""Plans a batch: when tasks and their times are known beforehand, which GPU each goes to for the fewest GPU hours.

Tasks are placed in up to three orders, heavy and long or late ones first, in several plans side by side; the best is
taken.  A large batch is planned step by step: some tasks at a time, of which the earlier half stays.  For schedules and
reservations, and the fair comparison with an optimum that also knows everything; single calls are placed as they come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

from dgsf.core.placement.holdings import Holding, Slicing
from dgsf.core.placement.pieces import Interval
from dgsf.core.placement.sidebyside import SAME, SideBySide

WIDTH = 12  # plans side by side
LARGE = 250  # tasks: more are planned step by step
STEP = 40
MORE_BY_LENGTH, MORE_BY_SHARE = 1200, 300  # thousandths, added to a share before it is multiplied by a length


def plan(
    tasks: Sequence[Interval], slicing: Slicing | None = None, width: int = WIDTH, large: int = LARGE
) -> tuple[list[int], float]:
    """The GPU of each task, and the time that GPUs are in use, in the unit of the tasks' times.

    With `slicing`, tasks sit in slices that belong to one owner.  More `width` is better and slower in proportion.
    """
    by_start = sorted(range(len(tasks)), key=lambda task: (tasks[task][0], task))
    batch = _Batch([tasks[task] for task in by_start], slicing and slicing.of(by_start))
    done, step = 0, min(large, STEP) if len(tasks) > large else len(tasks)
    while done < len(tasks):
        until = min(done + step, len(tasks))
        stays = until if until == len(tasks) else done + max(1, step // 2)
        batch.settle(done, until, stays, width)
        done = stays
    gpus = [-1] * len(tasks)
    for task, gpu in zip(by_start, batch.gpu, strict=True):
        gpus[task] = gpu
    return gpus, time_in_use(tasks, gpus)


class _Shared(NamedTuple):
    """Tasks that share a slice of this size, or with free shares all tasks of a GPU."""

    tasks: list[int]
    size: int


class _Batch:
    """Tasks, numbered by their starts, and where they have been put for good."""

    def __init__(self, tasks: Sequence[Interval], slicing: Slicing | None) -> None:
        self._tasks, self._slicing = tasks, slicing
        self.gpu = [-1] * len(tasks)
        self._on: dict[int, list[_Shared]] = {}  # what still runs on each GPU

    def settle(self, done: int, until: int, stays: int, width: int) -> None:
        """Plan the tasks from `done` to `until` together; those before `stays` are put for good."""
        self._let_end(self._tasks[done][0])
        held = sorted(task for groups in self._on.values() for group in groups for task in group.tasks)
        numbers = [*held, *range(done, until)]
        found = self._best(numbers, len(held), width)
        labels = list(self._on)
        idle = (gpu for gpu in count() if gpu not in labels)
        self._on = {}
        for place, holding in enumerate(found):
            if place == len(labels):
                labels.append(next(idle))
            self._on[labels[place]] = groups = _kept(holding, numbers, stays)
            for task in (task for group in groups for task in group.tasks):
                self.gpu[task] = labels[place]

    def _let_end(self, now: float) -> None:
        for gpu, groups in list(self._on.items()):
            left = [_Shared([task for task in tasks if self._tasks[task][1] > now], size) for tasks, size in groups]
            self._on[gpu] = [group for group in left if group.tasks]
            if not self._on[gpu]:
                del self._on[gpu]

    def _best(self, numbers: Sequence[int], held: int, width: int) -> list[Holding]:
        """What each GPU holds; first those in use, in their order.  Tasks are numbered by their place in `numbers`."""
        now = self._tasks[numbers[held]][0]
        tasks = [(max(start, now), end, share) for start, end, share in (self._tasks[task] for task in numbers)]
        place = {task: place for place, task in enumerate(numbers)}
        groups = [[[place[task] for task in group.tasks] for group in groups] for groups in self._on.values()]
        slicing = self._slicing_of(numbers)
        orders = _orders(tasks, slicing, held, whole=len(numbers) == len(self._tasks))
        return _search(SideBySide(tasks, slicing, groups), orders, width)

    def _slicing_of(self, numbers: Sequence[int]) -> Slicing | None:
        """Tasks that are in a slice already keep its size, though the one that decided it may have ended."""
        if self._slicing is None:
            return None
        decided = {task: size for groups in self._on.values() for tasks, size in groups for task in tasks}
        alone = self._slicing.of(numbers)
        return Slicing(alone.owners, [decided.get(task, size) for task, size in zip(numbers, alone.sizes, strict=True)])


def _search(search: SideBySide, orders: Iterable[list[int]], width: int) -> list[Holding]:
    least, gpus, _ = search.start
    best = float("inf")
    for order in orders:
        found = search.best(order, width, best)
        if found:
            best, gpus, _ = found
        if best <= least + SAME:
            break
    return gpus[:-1]  # without the one that holds nothing


def _orders(tasks: Sequence[Interval], slicing: Slicing | None, first: int, whole: bool) -> Iterator[list[int]]:
    """More by length, what may decide a slice's size before what would share it; more by share; and by end.

    Each cuts off good plans that another one keeps: by end, time is settled from its end backwards, all tasks of one
    stretch together, and short heavy ones do not wait until what they need is taken.  Of a batch that goes on after
    these tasks, the end is what gets planned anew, so that this order would settle the wrong part best.
    """
    weight = _weight(tasks, MORE_BY_LENGTH)
    yield _heaviest_first(_with_leaders(weight, tasks, slicing) if slicing else weight, first)
    yield _heaviest_first(_weight(tasks, MORE_BY_SHARE), first)
    if whole:
        yield _heaviest_first([end for _, end, _ in tasks], first)


def _weight(tasks: Sequence[Interval], more: int) -> list[float]:
    return [(share + more) * (end - start) for start, end, share in tasks]


def _heaviest_first(weight: Sequence[float], first: int) -> list[int]:
    return sorted(range(first, len(weight)), key=lambda task: (-weight[task], task))


def _with_leaders(weight: Sequence[float], tasks: Sequence[Interval], slicing: Slicing) -> list[float]:
    """A task weighs at least what any later one does that could share its larger slice."""
    owners, sizes = slicing.owners, slicing.sizes
    return [
        max(
            [weight[lead]]
            + [
                weight[task]
                for task in range(lead + 1, len(tasks))
                if owners[task] == owners[lead] and sizes[task] < sizes[lead] and tasks[task][0] < tasks[lead][1]
            ]
        )
        for lead in range(len(tasks))
    ]


def _kept(holding: Holding, numbers: Sequence[int], stays: int) -> list[_Shared]:
    """The groups of a GPU, without tasks that do not stay."""
    groups = [(one.tasks, one.size) for one in holding.slices] or [(holding.tasks, 0)]
    shared = [_Shared([task for task in _members(tasks, numbers) if task < stays], size) for tasks, size in groups]
    return [group for group in shared if group.tasks]


def _members(bits: int, numbers: Sequence[int]) -> list[int]:
    return [number for place, number in enumerate(numbers) if bits >> place & 1]


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
