"""The fewest cold starts that any rule could have which keeps instances but loads none ahead, knowing all calls.

An instance that serves two calls stays for the gap between them; so a call is warm only if such a gap is paid for.
Each call is paired with the latest instance of its function that ended before it and serves nobody else: the gaps are
then nested or apart, and keeping the shortest ones buys the most warm starts.  With one slot and no time to load this
is exact.  With more slots it is taken that every slot is full all the time, and loads are taken to cost nothing: no
rule does better, perhaps none does as well.  With loads ahead of calls that are known beforehand nothing would be cold.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence

from dgsf.sim.warmpool import WarmCall


def fewest_cold(calls: Sequence[WarmCall], slots: int, resident_s: float, count_from: float = 0.0) -> int:
    """Of the calls since `count_from`, within so many resident device-seconds since then."""
    end = calls[-1][0] if calls else 0.0
    runs = sum(max(0.0, min(end, at + run_s) - max(count_from, at)) for at, _, run_s in calls)
    left = slots * resident_s - runs
    cold = sum(at >= count_from for at, _, _ in calls)
    for gap in sorted(idle_gaps(calls, count_from)):
        left -= gap
        if left < 0:
            break
        cold -= 1
    return cold


def idle_gaps(calls: Sequence[WarmCall], count_from: float = 0.0) -> Iterator[float]:
    """For every call since `count_from` that could be warm: the seconds since then that an instance waits for it."""
    runs: list[tuple[float, str]] = []
    ended: dict[str, list[float]] = defaultdict(list)
    for at, function, run_s in calls:
        while runs and runs[0][0] <= at:
            end, which = heapq.heappop(runs)
            ended[which].append(end)
        if ended[function]:
            since = ended[function].pop()
            if at >= count_from:
                yield at - max(since, count_from)
        heapq.heappush(runs, (at + run_s, function))
