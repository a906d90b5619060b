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
_NOWHERE: tuple[int, ...] = ()


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


Could = tuple[Sequence[int], int]  # in which of its slices a GPU could take a task, or NEW; in which pieces it was idle
Places = dict[Holding, Could | None]  # None: nowhere.  Asked for a GPU that it does not know, it finds out


class Ways(Protocol):
    """How GPUs take tasks."""

    def of(self, groups: Sequence[Sequence[int]]) -> Holding:
        """A GPU that holds these tasks, each group in one slice."""
        ...

    def places(self, task: int) -> Places:
        """Where GPUs could take this task too."""
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

    def places(self, task: int) -> Places:
        return _FreePlaces(self._taken[task], self._guard, self._span[task])

    def taken(self, holding: Holding, task: int, place: int) -> Holding:
        tasks = holding.tasks | 1 << task
        known = self._known.get(tasks)
        if known is None:
            load, busy = holding.load + self._taken[task], holding.busy | self._span[task]
            known = self._known[tasks] = Holding(tasks, load, busy)
        return known


class _FreePlaces(Places):
    """For one task."""

    __slots__ = ("_guard", "_span", "_taken")

    def __init__(self, taken: int, guard: int, span: int) -> None:
        self._taken, self._guard, self._span = taken, guard, span

    def __missing__(self, holding: Holding) -> Could | None:
        full = (holding.load + self._taken) & self._guard
        self[holding] = found = None if full else (_NEW_ONLY, self._span & ~holding.busy)
        return found


class OwnedSlices:
    """Tasks sit in slices of their owners."""

    def __init__(self, tasks: Sequence[Interval], pieces: Pieces, slicing: Slicing) -> None:
        self.pieces, self._span = pieces, pieces.spans
        self.sizes, self.peers = slicing.sizes, _overlapping(slicing.owners, pieces.spans)
        self.taken_inside = [task[2] * spread for task, spread in zip(tasks, pieces.spreads, strict=True)]
        self.whole = [size * spread for size, spread in zip(slicing.sizes, pieces.spreads, strict=True)]
        self._known: dict[tuple[Holding, int, int], Holding] = {}
        self.room = {size: pieces.room(size) for size in set(slicing.sizes)}
        self._alone = [
            Slice(1 << task, task, size, self.room[size] + self.taken_inside[task], pieces.spans[task])
            for task, size in enumerate(slicing.sizes)
        ]

    def of(self, groups: Sequence[Sequence[int]]) -> Holding:
        holding = Holding(0, self.pieces.empty, 0)
        for place, group in enumerate(groups):
            for task in group:
                holding = self.taken(holding, task, NEW if task == group[0] else place)
        return holding

    def places(self, task: int) -> Places:
        return _SlicedPlaces(self, task)

    def taken(self, holding: Holding, task: int, place: int) -> Holding:
        key = (holding, task, place)
        known = self._known.get(key)
        if known is None:
            known = self._opened(holding, task) if place == NEW else self._grown(holding, task, place)
            self._known[key] = known
        return known

    def _opened(self, holding: Holding, task: int) -> Holding:
        one = self._alone[task]
        load, busy = holding.load + self.whole[task], holding.busy | one.alive
        return Holding(holding.tasks | one.tasks, load, busy, (*holding.slices, one))

    def _grown(self, holding: Holding, task: int, place: int) -> Holding:
        slices, spread = holding.slices, self.pieces.spread
        old = slices[place]
        one = self._joined(old, task)
        load = holding.load + one.size * spread[one.alive] - old.size * spread[old.alive]
        tasks, busy = holding.tasks | 1 << task, holding.busy | one.alive
        return Holding(tasks, load, busy, (*slices[:place], one, *slices[place + 1 :]))

    def _joined(self, one: Slice, task: int) -> Slice:
        """With a task more; one that starts before all others decides the size anew."""
        tasks, first, size, inside, alive = one
        if task < first:
            inside += self.room[self.sizes[task]] - self.room[size]
            first, size = task, self.sizes[task]
        return Slice(tasks | 1 << task, first, size, inside + self.taken_inside[task], alive | self._span[task])


class _SlicedPlaces(Places):
    """For one task: a new slice, and each slice of its owner that has room or, if it decides the size anew, gets it.

    Only what it overlaps: a slice is gone once none of its tasks runs.  A task that is placed later might overlap both
    and join them; such plans are left out, since most that could hope for it would only crowd out others.
    """

    __slots__ = ("_guard", "_peers", "_room", "_rooms", "_size", "_span", "_spread", "_taken", "_task", "_whole")

    def __init__(self, ways: OwnedSlices, task: int) -> None:
        self._task, self._size, self._rooms = task, ways.sizes[task], ways.room
        self._room = ways.room[self._size]  # of a slice whose size it decides
        self._whole, self._taken, self._peers = ways.whole[task], ways.taken_inside[task], ways.peers[task]
        self._span, self._guard, self._spread = ways.pieces.spans[task], ways.pieces.guard, ways.pieces.spread

    def __missing__(self, holding: Holding) -> Could | None:
        load, peers = holding.load, self._peers
        here = _NOWHERE if (load + self._whole) & self._guard else _NEW_ONLY
        if holding.tasks & peers:
            slices = enumerate(holding.slices)
            here = (*here, *[place for place, one in slices if one.tasks & peers and self._may_join(one, load)])
        self[holding] = found = (here, self._span & ~holding.busy) if here else None
        return found

    def _may_join(self, one: Slice, load: int) -> bool:
        """Whether the slice has room for it, and its GPU for the slice as it would become."""
        _, first, size, inside, alive = one
        inside += self._taken
        if self._task > first:
            return not (inside | load + size * self._spread[self._span & ~alive]) & self._guard
        if (inside + self._room - self._rooms[size]) & self._guard:
            return False
        grown = load + self._size * self._spread[alive | self._span] - size * self._spread[alive]
        return not grown & self._guard


def _overlapping(owners: Sequence[str], spans: Sequence[int]) -> list[int]:
    """For each task those of its owner that run at some time when it does, itself too, a bit each."""
    of_owner: dict[str, list[int]] = {}
    for task, owner in enumerate(owners):
        of_owner.setdefault(owner, []).append(task)
    return [
        sum([1 << other for other in of_owner[owner] if spans[other] & span])
        for owner, span in zip(owners, spans, strict=True)
    ]
