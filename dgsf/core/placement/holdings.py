"""What one GPU holds over time, for planning, and the ways in which it could take one task more.

With free shares each task takes its own share.  With slices, tasks of one owner may share a slice; its size is decided
by the one of them that starts first, and it takes its whole size of the GPU while any of them runs; once none does, it
is gone.  Tasks are numbered in the order of their starts.  Holdings never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from dgsf.core.placement.pieces import Interval, Pieces

NEW = -1
_NEW_ONLY = (NEW,)


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


class Holding:
    """The tasks of one GPU."""

    __slots__ = ("busy", "load", "slices", "tasks")

    def __init__(self, tasks: int, load: int, busy: int, slices: tuple[Slice, ...] = ()) -> None:
        self.tasks = tasks  # a bit each
        self.load = load
        self.busy = busy  # pieces
        self.slices = slices


class Ways(Protocol):
    """How GPUs take tasks."""

    def of(self, groups: Sequence[Sequence[int]]) -> Holding:
        """A GPU that holds these tasks, each group in one slice."""
        ...

    def places(self, holding: Holding, task: int) -> Sequence[int]:
        """Where the GPU could take this task too: in which of its slices, or NEW."""
        ...

    def taken(self, holding: Holding, task: int, place: int) -> Holding:
        """What the GPU holds once it has taken the task there."""
        ...


class FreeShares:
    """Each task takes its own share."""

    def __init__(self, tasks: Sequence[Interval], pieces: Pieces) -> None:
        self._span, self._guard, self._empty = pieces.spans, pieces.guard, pieces.empty
        self._taken = [task[2] * spread for task, spread in zip(tasks, pieces.spreads, strict=True)]
        self._known: dict[int, Holding] = {}

    def of(self, groups: Sequence[Sequence[int]]) -> Holding:
        holding = Holding(0, self._empty, 0)
        for task in (task for group in groups for task in group):
            holding = self.taken(holding, task, NEW)
        return holding

    def places(self, holding: Holding, task: int) -> Sequence[int]:
        return () if (holding.load + self._taken[task]) & self._guard else _NEW_ONLY

    def taken(self, holding: Holding, task: int, place: int) -> Holding:
        tasks = holding.tasks | 1 << task
        known = self._known.get(tasks)
        if known is None:
            load, busy = holding.load + self._taken[task], holding.busy | self._span[task]
            known = self._known[tasks] = Holding(tasks, load, busy)
        return known


class OwnedSlices:
    """Tasks sit in slices of their owners."""

    def __init__(self, tasks: Sequence[Interval], pieces: Pieces, slicing: Slicing) -> None:
        self._pieces, self._span, self._guard = pieces, pieces.spans, pieces.guard
        self._owners, self._sizes = slicing.owners, slicing.sizes
        self._taken = [task[2] * spread for task, spread in zip(tasks, pieces.spreads, strict=True)]
        self._whole = [size * spread for size, spread in zip(slicing.sizes, pieces.spreads, strict=True)]
        self._known: dict[tuple[Holding, int, int], Holding] = {}
        self._room = {size: pieces.room(size) for size in set(slicing.sizes)}

    def of(self, groups: Sequence[Sequence[int]]) -> Holding:
        holding = Holding(0, self._pieces.empty, 0)
        for place, group in enumerate(groups):
            for task in group:
                holding = self.taken(holding, task, NEW if task == group[0] else place)
        return holding

    def places(self, holding: Holding, task: int) -> Sequence[int]:
        """A new slice, and each slice of its owner that has room or, if the task decides the size anew, gets it.

        Only what it overlaps: a slice is gone once none of its tasks runs.  A task that is placed later might overlap
        both and join them; such plans are left out, since most that could hope for it would only crowd out others.
        """
        load, span = holding.load, self._span[task]
        owner, owners = self._owners[task], self._owners
        found = [] if (load + self._whole[task]) & self._guard else [NEW]
        for place, one in enumerate(holding.slices):
            if owners[one.first] == owner and one.alive & span and self._may_join(one, task, load):
                found.append(place)
        return found

    def _may_join(self, one: Slice, task: int, load: int) -> bool:
        spread = self._pieces.spread
        if task > one.first:
            grown = load + one.size * spread[self._span[task] & ~one.alive]
            return not ((one.inside + self._taken[task]) | grown) & self._guard
        led = self._joined(one, task)
        grown = load + led.size * spread[led.alive] - one.size * spread[one.alive]
        return not (led.inside | grown) & self._guard

    def taken(self, holding: Holding, task: int, place: int) -> Holding:
        key = (holding, task, place)
        known = self._known.get(key)
        if known is None:
            known = self._opened(holding, task) if place == NEW else self._grown(holding, task, place)
            self._known[key] = known
        return known

    def _opened(self, holding: Holding, task: int) -> Holding:
        size, span, tasks = self._sizes[task], self._span[task], 1 << task
        one = Slice(tasks, task, size, self._room[size] + self._taken[task], span)
        load, busy = holding.load + self._whole[task], holding.busy | span
        return Holding(holding.tasks | tasks, load, busy, (*holding.slices, one))

    def _grown(self, holding: Holding, task: int, place: int) -> Holding:
        slices, spread = holding.slices, self._pieces.spread
        old = slices[place]
        one = self._joined(old, task)
        load = holding.load + one.size * spread[one.alive] - old.size * spread[old.alive]
        tasks, busy = holding.tasks | 1 << task, holding.busy | one.alive
        return Holding(tasks, load, busy, (*slices[:place], one, *slices[place + 1 :]))

    def _joined(self, one: Slice, task: int) -> Slice:
        """With a task more; one that starts before all others decides the size anew."""
        tasks, first, size, inside, alive = one
        if task < first:
            inside += self._room[self._sizes[task]] - self._room[size]
            first, size = task, self._sizes[task]
        return Slice(tasks | 1 << task, first, size, inside + self._taken[task], alive | self._span[task])
