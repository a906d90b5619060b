"""The calls that wait for an instance, and whose turn it is: by the clocks of their tenants, then by age.

Requests of one shape find room or find none alike, so calls are kept in lines, one for each shape and tenant, and only
the first of a shape is asked for.  Each function's own calls are known too, for its warm instances.  What a line or a
heap says may be out of date; it is put right when it comes up, so nobody searches and nothing is sorted.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

Turn = tuple[float, int, int]  # the clock of the tenant, its oldest call, the tenant: the lowest goes first
_OUTDATED = 64  # entries that may lie in a heap beside as many as count


class _Lines:
    """Those of one shape."""

    __slots__ = ("calls", "latest", "turns")

    def __init__(self) -> None:
        self.calls: dict[int, list[int]] = {}  # tenant: its calls, a heap; some may have been started
        self.turns: list[Turn] = []  # a heap
        self.latest: dict[int, Turn] = {}  # tenant: the entry that counts, never above what is true


class Waiting:
    """Who waits, in the order of their turn."""

    def __init__(
        self, function_of: Sequence[int], shape_of: Sequence[int], tenant_of: Sequence[int], clock: Sequence[float]
    ) -> None:
        """Functions of calls, shapes and tenants of functions, clocks of tenants; these may rise at any time."""
        self.queues: list[list[int]] = [[] for _ in shape_of]  # the calls of each function: a heap
        self.count = 0
        self._function_of = function_of
        self._shape_of = shape_of
        self._tenant_of = tenant_of
        self._clock = clock
        self._lines: dict[int, _Lines] = {}  # by shape
        self._shapes: dict[int, dict[int, None]] = {}  # tenant: the shapes that it has lines of

    def __bool__(self) -> bool:
        return self.count > 0

    def add(self, call: int) -> None:
        """It waits from now on; one that ran before keeps its age."""
        function = self._function_of[call]
        shape, tenant = self._shape_of[function], self._tenant_of[function]
        heapq.heappush(self.queues[function], call)
        self.count += 1
        lines = self._lines.get(shape)
        if lines is None:
            lines = self._lines[shape] = _Lines()
        calls = lines.calls.get(tenant)
        if calls is None:
            calls = lines.calls[tenant] = []
            self._shapes.setdefault(tenant, {})[shape] = None
        heapq.heappush(calls, call)
        if calls[0] == call:
            self._enter(lines, tenant)

    def take(self, function: int) -> int:
        """The oldest call of a function is about to start."""
        self.count -= 1
        return heapq.heappop(self.queues[function])

    def lowered(self, tenant: int) -> None:
        """The clock of a tenant was put back."""
        for shape in self._shapes.get(tenant, ()):
            self._enter(self._lines[shape], tenant)

    @property
    def shapes(self) -> list[int]:
        """Those that somebody may be waiting for."""
        return list(self._lines)

    def first(self, shape: int) -> Turn | None:
        """Whose turn it is among those of one shape; None: nobody waits for that."""
        lines = self._lines.get(shape)
        if lines is None:
            return None
        turns, latest = lines.turns, lines.latest
        while turns:
            turn = turns[0]
            tenant = turn[2]
            if latest.get(tenant) is not turn:
                heapq.heappop(turns)
                continue
            call = self._oldest(lines.calls[tenant])
            if call is None:
                heapq.heappop(turns)
                del latest[tenant], lines.calls[tenant], self._shapes[tenant][shape]
            elif call == turn[1] and self._clock[tenant] == turn[0]:
                return turn
            else:
                latest[tenant] = (self._clock[tenant], call, tenant)
                heapq.heapreplace(turns, latest[tenant])
        del self._lines[shape]
        return None

    def anyone_before(self, clock: float, call: int) -> bool:
        """Whether somebody waits whose turn comes before that of such a call."""
        limit = (clock, call)
        return any((turn := self.first(shape)) is not None and turn[:2] < limit for shape in self.shapes)

    def _enter(self, lines: _Lines, tenant: int) -> None:
        turn = (self._clock[tenant], lines.calls[tenant][0], tenant)
        lines.latest[tenant] = turn
        heapq.heappush(lines.turns, turn)
        if len(lines.turns) > 2 * len(lines.latest) + _OUTDATED:
            lines.turns[:] = lines.latest.values()
            heapq.heapify(lines.turns)

    def _oldest(self, calls: list[int]) -> int | None:
        """Of a line.  If that waits, it is the first of its function too; otherwise it was started by another way."""
        while calls:
            queue = self.queues[self._function_of[calls[0]]]
            if queue and queue[0] == calls[0]:
                return calls[0]
            heapq.heappop(calls)
        return None
