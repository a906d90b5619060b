"""Templates: what two runs of the same segment of calls have in common. Pure.

A segment is a list of steps, calls and frees, between two boundaries.  Of two segments with the same kinds of
calls, each handle is either the very same in both or lies at the same distance from the segment's base; a
step with any other handle is `loose`: it takes part in the match but is always sent by itself.  Floats are
the same or become holes.  Frees that differ are left out: they can be sent at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dgsf.remoting.guest.kinds import Kind
from dgsf.remoting.protocol import Record, absolute, relative

HOLES = ("holes",)  # the floats of this call come with every run
LOOSE = ("loose",)  # this call is sent by itself
MAX_HANDLES = 150_000  # of a template, so that it fits into a frame
NO_FLOATS: tuple[float, ...] = ()


class Step(NamedTuple):
    """One entry of a segment as it happened: a call, or a free (kind None)."""

    kind: Kind | None
    handles: list[int]
    floats: tuple[float, ...]
    out: int
    line: Any = None


Entry = tuple[Kind | None, int, int, Any]  # kind, its handles in `flat` from, to, floats: a tuple, HOLES or LOOSE


@dataclass(slots=True, eq=False)
class Template:
    """A segment that can be run by its number."""

    number: int
    entries: list[Entry]
    values: np.ndarray[Any, Any]  # of all handles in a row: the handle, or its distance from the base
    moving: np.ndarray[Any, Any]  # 1 where it is a distance
    steps: list[Step]  # the segment it was made of
    outs: list[int]  # per entry: its first new handle, from the base
    follower: Template | None = None  # what came next the last time
    used: int = 0
    mark: int = 0  # of the last epoch in which it ran to its end, see `numbers`
    wire: list[Any] = field(default_factory=list)  # its TRACE record
    calls_before: list[int] = field(default_factory=list)  # per entry: calls in front of it
    lines: list[Any] = field(default_factory=list)  # per call

    @property
    def loose(self) -> int:
        return sum(entry[3] is LOOSE for entry in self.entries)

    def handles(self, base: int) -> list[int]:
        """Those that a run from this base uses, in a row."""
        flat: list[int] = (self.values + self.moving * base).tolist()
        return flat

    def define(self, number_of: Callable[[Kind], int]) -> list[Any]:
        """Its TRACE record, with the kinds' numbers as they are now."""
        coded = [self._entry(index, number_of) for index in range(len(self.entries))]
        self.wire = [int(Record.TRACE), self.number, coded]
        return self.wire

    def _entry(self, index: int, number_of: Callable[[Kind], int]) -> list[Any]:
        kind, first, last, floats = self.entries[index]
        pairs = zip(self.values[first:last].tolist(), self.moving[first:last].tolist(), strict=True)
        coded = [relative(value) if moves else absolute(value) for value, moves in pairs]
        if kind is None:
            return [int(Record.FREE), coded]
        call: list[Any] = [number_of(kind), self.outs[index], coded]
        if floats is HOLES:
            call.append([None] * len(self.steps[index].floats))
        elif self.steps[index].floats:
            call.append(list(self.steps[index].floats))
        return call


def kinds_of(segment: list[Step]) -> tuple[Kind, ...]:
    """What a segment is recognised by: its calls, not its frees."""
    return tuple(step.kind for step in segment if step.kind is not None)


def common(number: int, old: list[Step], old_base: int, new: list[Step], base: int) -> Template | None:
    """The template of two segments with the same kinds; None if too little of them can be replayed."""
    pairs = _pairs(old, new)
    steps = [pair[1] for pair in pairs]
    entries: list[Entry] = []
    values: list[int] = []
    moving: list[int] = []
    loose = 0
    for before, now in pairs:
        codes = _codes(before.handles, old_base, now.handles, base)
        first = len(values)
        if codes is None:
            loose += 1
            values.extend(now.handles)
            moving.extend([0] * len(now.handles))
        else:
            values.extend(codes[0])
            moving.extend(codes[1])
        entries.append((now.kind, first, len(values), LOOSE if codes is None else _floats(before, now)))
    if loose * 3 > len(entries) or len(values) > MAX_HANDLES:
        return None
    calls_before, calls = [], 0
    for step in steps:
        calls_before.append(calls)
        calls += step.kind is not None
    return Template(
        number,
        entries,
        np.array(values, dtype=np.int64),
        np.array(moving, dtype=np.int64),
        steps,
        [step.out - base for step in steps],
        calls_before=calls_before,
        lines=[step.line for step in steps if step.kind is not None],
    )


def loosen(new: Template, old: Template) -> None:
    """Of two templates of the same calls: what is not the same in both is loose in the new one, a hole stays one."""
    before = [index for index, entry in enumerate(old.entries) if entry[0] is not None]
    position = 0
    for index, (kind, first, last, _) in enumerate(new.entries):
        if kind is None:
            continue
        was = before[position]
        if _coded(old, was) != _coded(new, index):
            new.entries[index] = (kind, first, last, LOOSE)
        elif old.entries[was][3] is HOLES:
            new.entries[index] = (kind, first, last, HOLES)
        position += 1


def equal(one: Template, other: Template) -> bool:
    """Whether they say the same."""
    return (
        one.entries == other.entries
        and one.outs == other.outs
        and np.array_equal(one.values, other.values)
        and np.array_equal(one.moving, other.moving)
    )


def _coded(template: Template, index: int) -> tuple[list[int], list[int]] | None:
    _, first, last, floats = template.entries[index]
    if floats is LOOSE:
        return None
    return template.values[first:last].tolist(), template.moving[first:last].tolist()


def _pairs(old: list[Step], new: list[Step]) -> list[tuple[Step, Step]]:
    """Calls one by one, with those frees that stand at the same place in both and are as long."""
    pairs: list[tuple[Step, Step]] = []
    old_frees: dict[int, Step] = {}
    calls: list[Step] = []
    for step in old:
        if step.kind is None:
            old_frees[len(calls)] = step
        else:
            calls.append(step)
    position = 0
    for step in new:
        if step.kind is not None:
            pairs.append((calls[position], step))
            position += 1
            continue
        before = old_frees.get(position)
        if before is not None and len(before.handles) == len(step.handles):
            pairs.append((before, step))
    return pairs


def _codes(old: list[int], old_base: int, new: list[int], base: int) -> tuple[list[int], list[int]] | None:
    values: list[int] = []
    moving: list[int] = []
    if len(old) != len(new):
        return None
    for was, now in zip(old, new, strict=True):
        if was == now:
            values.append(now)
            moving.append(0)
        elif was - old_base == now - base:
            values.append(now - base)
            moving.append(1)
        else:
            return None
    return values, moving


def _floats(before: Step, now: Step) -> tuple[Any, ...]:
    """Zeros are holes too: 0.0 equals -0.0 but is not the same."""
    if not now.floats:
        return NO_FLOATS
    return now.floats if before.floats == now.floats and all(now.floats) else HOLES
