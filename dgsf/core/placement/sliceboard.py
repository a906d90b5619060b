"""A board for tenant-exclusive slices: tasks of one owner may share a slice, whose size its first task decides.

A slice takes its whole size of the GPU in every piece of time in which any of its tasks runs.  Otherwise as `board`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from dgsf.core.placement.board import SPARE, Board, Interval, Kept
from dgsf.core.placement.model import WHOLE

SAME_OWNER = 0.5  # how often tasks of one owner are taken out with those of one GPU, instead of two GPUs
TOGETHER = 0.75  # probability that a task is put with others of its owner


@dataclass(frozen=True, slots=True)
class Slicing:
    """Whose each task is, and the size of the slice that it would open."""

    owners: Sequence[str]
    sizes: Sequence[int]


class _Slice(NamedTuple):
    gpu: int
    owner: str
    size: int
    first: int  # the task that decided the size
    inside: int  # loads, against the slice's own size
    alive: int  # pieces
    tasks: frozenset[int]


class SliceBoard(Board):
    """Tasks in slices, which are numbered as they are opened."""

    def __init__(self, tasks: Sequence[Interval], slicing: Slicing) -> None:
        super().__init__(tasks)
        self._owners, self._sizes = slicing.owners, slicing.sizes
        spread, fields = self.pieces.spread, self.pieces.all_fields
        self._wide = [size * spread(span) for size, span in zip(self._sizes, self.span, strict=True)]
        self._alone = [
            (SPARE + WHOLE - size) * fields + taken for size, taken in zip(self._sizes, self.taken, strict=True)
        ]
        self._slices: dict[int, _Slice] = {}
        self._in: list[int] = [-1] * len(tasks)
        self._opened = 0
        order = sorted(range(len(tasks)), key=lambda task: (tasks[task][0], task))
        self._turn = {task: turn for turn, task in enumerate(order)}

    def put(self, task: int, random: Random, blind: float) -> None:
        """In a slice where it adds least, or in a new one; among equals where slices grow least."""
        length, span, wide, guard = self.pieces.length, self.span[task], self._wide[task], self.guard
        best, chosen, joined = length(span), self.busy.index(0), -1
        grown = self._sizes[task] * best
        for gpu, busy in enumerate(self.busy):
            if not busy or (self.load[gpu] + wide) & guard or (blind and random.random() < blind):
                continue
            added = length(span & ~busy)
            if added < best:
                best, chosen = added, gpu
        for number, one in self._slices.items():
            if one.owner != self._owners[task] or not self._may_join(task, one):
                continue
            added, more = length(span & ~self.busy[one.gpu]), one.size * length(span & ~one.alive)
            if added < best or (added == best and more < grown):
                best, chosen, joined, grown = added, one.gpu, number, more
        if joined < 0:
            self._open(task, chosen)
        else:
            self._join(task, joined)
        self.enter(task, chosen, best)

    def _may_join(self, task: int, one: _Slice) -> bool:
        """Whether there is room, and the slice keeps the size that its first task decides."""
        if (one.inside + self.taken[task]) & self.guard:
            return False
        if self._sizes[task] != one.size and self._turn[task] < self._turn[one.first]:
            return False
        longer = self.span[task] & ~one.alive
        return not (self.load[one.gpu] + one.size * self.pieces.spread(longer)) & self.guard

    def _open(self, task: int, gpu: int) -> None:
        self._opened += 1
        self._in[task] = self._opened
        self._slices[self._opened] = _Slice(
            gpu, self._owners[task], self._sizes[task], task, self._alone[task], self.span[task], frozenset((task,))
        )
        self.load[gpu] += self._wide[task]

    def _join(self, task: int, number: int) -> None:
        gpu, owner, size, first, inside, alive, tasks = self._slices[number]
        longer = self.span[task] & ~alive
        self.load[gpu] += size * self.pieces.spread(longer)
        if self._turn[task] < self._turn[first]:
            first = task
        inside += self.taken[task]
        self._slices[number] = _Slice(gpu, owner, size, first, inside, alive | longer, tasks | {task})
        self._in[task] = number

    def related(self, task: int, near: list[int], around: list[int], random: Random) -> list[int]:
        """Or all tasks that start at about the same time, of its owner and on one GPU."""
        if random.random() >= SAME_OWNER:
            return super().related(task, near, around, random)
        owner, gpu = self._owners[task], self.gpu[near[int(random.random() * len(near))]]
        return [other for other in around if self._owners[other] == owner or self.gpu[other] == gpu]

    def put_together(self, tasks: list[int], random: Random) -> list[int]:
        """Some tasks of one owner into one new slice, where together they add least.

        One by one none of them might go where all of them are best.
        """
        owner = self._owners[tasks[int(random.random() * len(tasks))]]
        mine = [task for task in tasks if self._owners[task] == owner and random.random() < TOGETHER]
        chosen = self._filling_one_slice(sorted(mine, key=self._turn.__getitem__))
        if len(chosen) < 2:
            return tasks
        span = self.together(frozenset(chosen))
        wide, length = self._sizes[chosen[0]] * self.pieces.spread(span), self.pieces.length
        able = [gpu for gpu, busy in enumerate(self.busy) if busy and not (self.load[gpu] + wide) & self.guard]
        gpu = min(able, key=lambda gpu: length(span & ~self.busy[gpu]), default=self.busy.index(0))
        for task in chosen:
            added = length(self.span[task] & ~self.busy[gpu])
            if task == chosen[0]:
                self._open(task, gpu)
            else:
                self._join(task, self._opened)
            self.enter(task, gpu, added)
        return [task for task in tasks if task not in chosen]

    def _filling_one_slice(self, tasks: list[int]) -> list[int]:
        """Those, earliest first, that fit into the slice that the first of them opens."""
        chosen: list[int] = []
        inside = 0
        for task in tasks:
            inside = inside if chosen else self._alone[task] - self.taken[task]
            if not (inside + self.taken[task]) & self.guard:
                inside += self.taken[task]
                chosen.append(task)
        return chosen

    def take(self, task: int) -> None:
        number = self._in[task]
        gpu, owner, size, first, inside, alive, tasks = self._slices.pop(number)
        tasks -= {task}
        still = self.together(tasks)
        self.load[gpu] -= size * self.pieces.spread(alive & ~still)
        if tasks:
            self._slices[number] = _Slice(gpu, owner, size, first, inside - self.taken[task], still, tasks)
        self.leave(task)

    def with_dependents(self, tasks: list[int]) -> list[int]:
        """Without its first task a slice might have another size: then all its tasks leave."""
        slices = (self._slices[self._in[task]] for task in tasks)
        led = [one for one, task in zip(slices, tasks, strict=True) if one.first == task and len(one.tasks) > 1]
        return list(dict.fromkeys(tasks + [task for one in led for task in sorted(one.tasks)]))

    def keep(self) -> Kept:
        self._kept = (self._slices.copy(), self._in[:])
        return super().keep()

    def bring_back(self, kept: Kept) -> None:
        super().bring_back(kept)
        self._slices, self._in = self._kept
