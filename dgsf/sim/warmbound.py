"""The fewest cold starts that any rule could have which keeps instances but loads none ahead, knowing all calls.

An instance that serves two calls stays for the gap between them; so a call is warm only if such a gap is paid for.
Each call is paired with the latest instance of its function that ended before it and serves nobody else: the gaps are
then nested or apart, and keeping the shortest ones buys the most warm starts.  With one slot and no time to load this
is exact.  With more slots it is taken that every slot is full all the time, and loads are taken to cost nothing: no
rule does better, perhaps none does as well.  With loads ahead of calls that are known beforehand nothing would be cold.
Where the calls of a function share an instance, the gap before a call is the time in which none of its function ran.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence

from dgsf.sim.warmpool import WarmCall


def fewest_cold(
    calls: Sequence[WarmCall], slots: int, resident_s: float, count_from: float = 0.0, *, shared: bool = False
) -> int:
    """Of the calls since `count_from`, within so many resident device-seconds since then."""
    end = calls[-1][0] if calls else 0.0
    spans = _shared_spans(calls) if shared else ((at, at + run_s) for at, _, run_s in calls)
    left = slots * resident_s - sum(max(0.0, min(end, until) - max(count_from, since)) for since, until in spans)
    cold = sum(at >= count_from for at, _, _ in calls)
    gaps = shared_gaps(calls, count_from) if shared else idle_gaps(calls, count_from)
    for gap in sorted(gaps):
        left -= gap
        if left < 0:
            break
        cold -= 1
    return cold


def idle_gaps(calls: Sequence[WarmCall], count_from: float = 0.0) -> Iterator[float]:
    """For every call since `count_from` that could be warm: the seconds since then that an instance waits for it.

    Calls before that may each have had an instance of their own, so they take none away.
    """
    runs: list[tuple[float, str]] = []
    ended: dict[str, list[float]] = defaultdict(list)
    for at, function, run_s in calls:
        while runs and runs[0][0] <= at:
            end, which = heapq.heappop(runs)
            ended[which].append(end)
        if at >= count_from and ended[function]:
            yield at - max(ended[function].pop(), count_from)
        heapq.heappush(runs, (at + run_s, function))


def shared_gaps(calls: Sequence[WarmCall], count_from: float = 0.0) -> Iterator[float]:
    """The same where a busy instance serves further calls of its function."""
    until: dict[str, float] = {}
    for at, function, run_s in calls:
        if function in until and at >= count_from:
            yield max(0.0, at - max(until[function], count_from))
        until[function] = max(until.get(function, 0.0), at + run_s)


def _shared_spans(calls: Sequence[WarmCall]) -> Iterator[tuple[float, float]]:
    """When instances are busy: the runs of each function, less where they overlap."""
    until: dict[str, float] = {}
    for at, function, run_s in calls:
        since = max(at, until.get(function, 0.0))
        if at + run_s > since:
            yield since, at + run_s
            until[function] = at + run_s
