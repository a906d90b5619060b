"""Time for planning, cut at every start and end of the tasks into pieces.

A set of pieces is a whole number with a bit per piece.  The loads of a GPU in all pieces are one whole number with a
field of eleven bits per piece, so that one addition and one mask say whether a task fits everywhere at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from dgsf.core.placement.model import WHOLE

Interval = tuple[float, float, int]  # start, end, thousandths of one GPU
FIELD = 11  # bits: a load is at most WHOLE before and twice that after adding a task
GUARD = 1 << (FIELD - 1)
SPARE = GUARD - 1 - WHOLE  # added to every field, so that a load above WHOLE sets its highest bit


class Pieces:
    """The pieces of time between all starts and ends."""

    def __init__(self, tasks: Sequence[Interval]) -> None:
        self._times = sorted({time for task in tasks for time in task[:2]})
        position = {time: number for number, time in enumerate(self._times)}
        self._fields = [0]  # the lowest bits of the first n fields
        for number in range(len(self._times) - 1):
            self._fields.append(self._fields[-1] | 1 << (FIELD * number))
        self.ranges = [(position[start], position[end]) for start, end, _ in tasks]
        self.spans = [(1 << last) - (1 << first) for first, last in self.ranges]
        self.spreads = [self._fields[last] ^ self._fields[first] for first, last in self.ranges]
        self.empty = SPARE * self._fields[-1]  # the loads of a GPU without tasks
        self.guard = GUARD * self._fields[-1]  # bits that are set where a load is above WHOLE
        self.length = _Lengths(self._times)
        self.spread = _Spreads(self._fields)

    def __len__(self) -> int:
        return len(self._times) - 1

    def room(self, size: int) -> int:
        """The loads of a slice of this size without tasks: what it lacks of a whole GPU is taken everywhere."""
        return self.empty + (WHOLE - size) * self._fields[-1]


class _Lengths(dict[int, float]):
    """How long these pieces are together; each sum is made once."""

    __slots__ = ("_times",)

    def __init__(self, times: Sequence[float]) -> None:
        super().__init__({0: 0.0})
        self._times = times

    def __missing__(self, pieces: int) -> float:
        times = self._times
        self[pieces] = known = sum([times[last] - times[first] for first, last in _runs(pieces)])
        return known


class _Spreads(dict[int, int]):
    """The lowest bits of the fields of these pieces."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Sequence[int]) -> None:
        super().__init__({0: 0})
        self._fields = fields

    def __missing__(self, pieces: int) -> int:
        fields = self._fields
        self[pieces] = known = sum([fields[last] ^ fields[first] for first, last in _runs(pieces)])
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
