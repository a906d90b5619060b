"""What one GPU holds over time, for planning, and the ways in which it could take one task more.

With free shares each task takes its own share.  With slices, tasks of one owner may share a slice; its size is decided
by the one of them that starts first, and it takes its whole size of the GPU while any of them runs.  Tasks are numbered
in the order of their starts.  Holdings never change, and equal ones are the same object.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from dgsf.core.placement.pieces import Interval, Pieces

NEW = -1
_MIXED = (1 << 64) - 1
Way = tuple[int, float, int]  # the mark of what is held then, share times time reserved, place of the slice or NEW


@dataclass(frozen=True, slots=True)
class Slicing:
    """Whose each task is, and the size of the slice that it would open."""

    owners: Sequence[str]
    sizes: Sequence[int]

    def of(self, tasks: Iterable[int]) -> Slicing:
        """Of these tasks alone."""
        chosen = list(tasks)
        return Slicing([self.owners[task] for task in chosen], [self.sizes[task] for task in chosen])


class Slice(NamedTuple):
    """Tasks of one owner that share a part of a GPU."""

    tasks: int  # a bit each
    first: int  # the task that decides the size
    size: int
    inside: int  # loads, against its own size
    alive: int  # pieces
    code: int  # the sum of its tasks' codes


class Holding:
    """The tasks of one GPU."""

    __slots__ = ("busy", "code", "load", "mark", "slices", "tasks")

    def __init__(self, tasks: int, load: int, busy: int, code: int, slices: tuple[Slice, ...] = ()) -> None:
        self.tasks = tasks  # a bit each
        self.load = load
        self.busy = busy  # pieces
        self.code = code  # the sum of its tasks' codes, or of the squares of its slices' codes
        self.mark = code * code  # the same for equal holdings, and hardly ever for others
        self.slices = slices


class Ways(Protocol):
    """How GPUs take tasks."""

    def of(self, groups: Sequence[Sequence[int]]) -> Holding:
        """A GPU that holds these tasks, each group in one slice."""
        ...

    def with_task(self, holding: Holding, task: int) -> list[Way]:
        """The ways in which the GPU could take this task too."""
        ...

    def taken(self, holding: Holding, task: int, place: int) -> Holding:
        """What the GPU holds once it has taken the task, in the slice at this place."""
        ...


class FreeShares:
    """Each task takes its own share."""

    def __init__(self, tasks: Sequence[Interval], pieces: Pieces) -> None:
        self._span, self._guard, self._empty = pieces.spans, pieces.guard, pieces.empty
        self._taken = [task[2] * spread for task, spread in zip(tasks, pieces.spreads, strict=True)]
        self._codes = _codes(len(tasks))
        self._known: dict[int, Holding] = {}

    def of(self, groups: Sequence[Sequence[int]]) -> Holding:
        holding = Holding(0, self._empty, 0, 0)
        for task in (task for group in groups for task in group):
            holding = self.taken(holding, task, NEW)
        return holding

    def with_task(self, holding: Holding, task: int) -> list[Way]:
        if (holding.load + self._taken[task]) & self._guard:
            return []
        code = holding.code + self._codes[task]
        return [(code * code, 0.0, NEW)]

    def taken(self, holding: Holding, task: int, place: int) -> Holding:
        tasks = holding.tasks | 1 << task
        known = self._known.get(tasks)
        if known is None:
            load, busy = holding.load + self._taken[task], holding.busy | self._span[task]
            known = self._known[tasks] = Holding(tasks, load, busy, holding.code + self._codes[task])
        return known


class OwnedSlices:
    """Tasks sit in slices of their owners."""

    def __init__(self, tasks: Sequence[Interval], pieces: Pieces, slicing: Slicing) -> None:
        self._pieces, self._span, self._guard = pieces, pieces.spans, pieces.guard
        self._owners, self._sizes = slicing.owners, slicing.sizes
        self._taken = [task[2] * spread for task, spread in zip(tasks, pieces.spreads, strict=True)]
        self._codes = _codes(len(tasks))
        self._slices: dict[int, Slice] = {}  # of one task each
        self._known: dict[frozenset[int], Holding] = {}

    def of(self, groups: Sequence[Sequence[int]]) -> Holding:
        holding = Holding(0, self._pieces.empty, 0, 0)
        for place, group in enumerate(groups):
            for task in group:
                holding = self.taken(holding, task, NEW if task == group[0] else place)
        return holding

    def with_task(self, holding: Holding, task: int) -> list[Way]:
        """In a new slice, or in each slice of its owner that has room or, if it decides the size anew, gets it."""
        pieces, load, own = self._pieces, holding.load, self._codes[task]
        size, code = self._sizes[task], holding.code + own * own
        found: list[Way] = []
        if not (load + size * pieces.spreads[task]) & self._guard:
            found.append((code * code, size * pieces.length(self._span[task]), NEW))
        owner, owners = self._owners[task], self._owners
        for place, one in enumerate(holding.slices):
            if owners[one.first] == owner and (grown := self._joining(one, task, load)) is not None:
                joined = code + 2 * own * one.code
                found.append((joined * joined, grown, place))
        return found

    def _joining(self, one: Slice, task: int, load: int) -> float | None:
        """The share times time that a slice grows by, if there is room for that."""
        pieces, guard = self._pieces, self._guard
        longer = self._span[task] & ~one.alive
        if task > one.first:
            if (one.inside + self._taken[task]) & guard or (load + one.size * pieces.spread(longer)) & guard:
                return None
            return one.size * pieces.length(longer)
        led = self._joined(one, task)
        grown = load + led.size * pieces.spread(led.alive) - one.size * pieces.spread(one.alive)
        if led.inside & guard or grown & guard:
            return None
        return led.size * pieces.length(led.alive) - one.size * pieces.length(one.alive)

    def taken(self, holding: Holding, task: int, place: int) -> Holding:
        slices, own = holding.slices, self._codes[task]
        if place == NEW:
            one, was, code = self._opened(task), 0, holding.code + own * own
            slices = (*slices, one)
        else:
            old = slices[place]
            one, was = self._joined(old, task), old.size * self._pieces.spread(old.alive)
            slices, code = (*slices[:place], one, *slices[place + 1 :]), holding.code + own * (own + 2 * old.code)
        key = frozenset([each.tasks for each in slices])
        known = self._known.get(key)
        if known is None:
            load = holding.load + one.size * self._pieces.spread(one.alive) - was
            known = Holding(holding.tasks | 1 << task, load, holding.busy | one.alive, code, slices)
            self._known[key] = known
        return known

    def _opened(self, task: int) -> Slice:
        one = self._slices.get(task)
        if one is None:
            size = self._sizes[task]
            inside = self._pieces.room(size) + self._taken[task]
            one = Slice(1 << task, task, size, inside, self._span[task], self._codes[task])
            self._slices[task] = one
        return one

    def _joined(self, one: Slice, task: int) -> Slice:
        """With a task more; one that starts before all others decides the size anew."""
        tasks, first, size, inside, alive, code = one
        if task < first:
            inside += self._pieces.room(self._sizes[task]) - self._pieces.room(size)
            first, size = task, self._sizes[task]
        inside, alive = inside + self._taken[task], alive | self._span[task]
        return Slice(tasks | 1 << task, first, size, inside, alive, code + self._codes[task])


def _codes(tasks: int) -> list[int]:
    """A number of 28 scattered bits for each task, so that squares of their sums hardly ever meet (as splitmix64)."""
    codes = []
    for number in range(1, tasks + 1):
        mixed = number * 0x9E3779B97F4A7C15 & _MIXED
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _MIXED
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MIXED
        codes.append(mixed >> 36)
    return codes
