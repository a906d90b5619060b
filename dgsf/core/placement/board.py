"""Who is where over time, for planning: GPUs, what they are loaded with in each piece of time, and what that costs.

Time is cut at every start and end.  The loads of a GPU in all pieces are one whole number with a field of eleven bits
per piece, so that one addition and one mask say whether a task fits everywhere at once; the pieces in which it is in
use are the bits of another.  A board is told what to put and take; it chooses only the GPU that a task costs least on.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from dgsf.core.placement.model import WHOLE

Interval = tuple[float, float, int]  # start, end, thousandths of one GPU
FIELD = 11  # bits: a load is at most WHOLE before and twice that after adding a task
GUARD = 1 << (FIELD - 1)
SPARE = GUARD - 1 - WHOLE  # added to every field, so that a load above WHOLE sets its highest bit
KEPT_LENGTHS = 1 << 16
Kept = tuple[list[int], list[int], list[frozenset[int]], list[float], list[int], float]


class Pieces:
    """The pieces of time between all starts and ends."""

    def __init__(self, tasks: Sequence[Interval]) -> None:
        times = sorted({time for task in tasks for time in task[:2]})
        position = {time: number for number, time in enumerate(times)}
        self._times = times
        self._fields = [0]  # the lowest bits of the first n fields
        for number in range(len(times) - 1):
            self._fields.append(self._fields[-1] | 1 << (FIELD * number))
        self.all_fields = self._fields[-1]
        self.spans = [(1 << position[end]) - (1 << position[start]) for start, end, _ in tasks]
        self._lengths: dict[int, float] = {}
        self._spread: dict[int, int] = {}

    def length(self, pieces: int) -> float:
        """How long these pieces are together."""
        known = self._lengths.get(pieces)
        if known is not None:
            return known
        total = 0.0
        for first, last in _runs(pieces):
            total += self._times[last] - self._times[first]
        if len(self._lengths) >= KEPT_LENGTHS:
            self._lengths.clear()
        self._lengths[pieces] = total
        return total

    def spread(self, pieces: int) -> int:
        """The lowest bits of the fields of these pieces."""
        known = self._spread.get(pieces)
        if known is None:
            if len(self._spread) >= KEPT_LENGTHS:
                self._spread.clear()
            known = sum(self._fields[last] ^ self._fields[first] for first, last in _runs(pieces))
            self._spread[pieces] = known
        return known


def _runs(bits: int) -> list[tuple[int, int]]:
    """First and one past the last position of each run of ones."""
    found = []
    while bits:
        lowest = bits & -bits
        carried = bits + lowest
        found.append((lowest.bit_length() - 1, (carried & ~bits).bit_length() - 1))
        bits &= carried
    return found


class Board:
    """Tasks that each take their own share of a GPU.  The last GPU is always an empty one."""

    def __init__(self, tasks: Sequence[Interval]) -> None:
        self.pieces = Pieces(tasks)
        self.span = self.pieces.spans
        self.taken = [task[2] * self.pieces.spread(span) for task, span in zip(tasks, self.span, strict=True)]
        self.work = [task[2] * (task[1] - task[0]) for task in tasks]
        self.gpu = [-1] * len(tasks)
        self.cost = 0.0
        self.load: list[int] = []
        self.busy: list[int] = []
        self.held: list[frozenset[int]] = []
        self.held_work: list[float] = []
        self._empty = SPARE * self.pieces.all_fields
        self.guard = GUARD * self.pieces.all_fields
        self.add_gpu()

    def add_gpu(self) -> None:
        self.load.append(self._empty)
        self.busy.append(0)
        self.held.append(frozenset())
        self.held_work.append(0.0)

    def put(self, task: int, random: Random, blind: float) -> None:
        """Where it adds least, among equals beside most work; each GPU is overlooked with this probability."""
        span, taken, guard, length = self.span[task], self.taken[task], self.guard, self.pieces.length
        load, work = self.load, self.held_work
        best, chosen = length(span), self.busy.index(0)
        for gpu, busy in enumerate(self.busy):
            if not busy or (load[gpu] + taken) & guard or (blind and random.random() < blind):
                continue
            added = length(span & ~busy)
            if added < best or (added == best and work[gpu] > work[chosen]):
                best, chosen = added, gpu
        self.load[chosen] += taken
        self.enter(task, chosen, best)

    def enter(self, task: int, gpu: int, added: float) -> None:
        """Book a task whose load has been added."""
        self.gpu[task] = gpu
        self.busy[gpu] |= self.span[task]
        self.held[gpu] |= {task}
        self.held_work[gpu] += self.work[task]
        self.cost += added
        if gpu == len(self.load) - 1:
            self.add_gpu()

    def take(self, task: int) -> None:
        self.load[self.gpu[task]] -= self.taken[task]
        self.leave(task)

    def leave(self, task: int) -> None:
        """Take out a task whose load has been taken off."""
        gpu = self.gpu[task]
        self.held[gpu] -= {task}
        self.held_work[gpu] -= self.work[task]
        still = self.together(self.held[gpu])
        self.cost -= self.pieces.length(self.busy[gpu] & ~still)
        self.busy[gpu] = still

    def together(self, tasks: frozenset[int]) -> int:
        """The pieces in which any of these runs."""
        pieces = 0
        for task in tasks:
            pieces |= self.span[task]
        return pieces

    def related(self, task: int, near: list[int], around: list[int], random: Random) -> list[int]:
        """Tasks to take out with this one: all that overlap, on its GPU and on that of another.

        `near` are those that overlap with it, `around` those that start at about the same time.
        """
        gpus = (self.gpu[task], self.gpu[near[int(random.random() * len(near))]])
        return [other for other in near if self.gpu[other] in gpus]

    def put_together(self, tasks: list[int], random: Random) -> list[int]:
        """Put some tasks as one; the answer is what is left to put."""
        return tasks

    def with_dependents(self, tasks: list[int]) -> list[int]:
        """These tasks and those that cannot stay without them."""
        return tasks

    def keep(self) -> Kept:
        return (self.load[:], self.busy[:], self.held[:], self.held_work[:], self.gpu[:], self.cost)

    def bring_back(self, kept: Kept) -> None:
        self.load, self.busy, self.held, self.held_work, self.gpu, self.cost = kept
