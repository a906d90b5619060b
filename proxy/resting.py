"""How long a proxy's tick may rest: while no call waits or runs, only the time of idle workers can come. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from proxy.lane import Lane
from proxy.worker_link import WorkerLink

LONGEST_US = 500_000  # as often as keep-warm looks


def rest_us(
    lanes: Iterable[Lane], draining: Collection[int], due_us: Callable[[Lane, WorkerLink], int], now_us: int
) -> int:
    """For so long nothing needs a look unless a call comes; 0: something may at any moment.

    `draining`: devices whose idle workers go at once; `due_us`: when an idle worker has been idle for long enough.
    """
    soonest = now_us + LONGEST_US
    for lane in lanes:
        if lane.queue or lane.starting or lane.starved:
            return 0
        for link in lane.links:
            if link.inflight or link.worn_out or link.post.device.id in draining:
                return 0
            soonest = min(soonest, due_us(lane, link))
    return max(0, soonest - now_us)
