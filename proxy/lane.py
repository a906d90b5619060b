"""A lane: the queue of one function version and the warm workers that serve it.

Pure bookkeeping on one event loop: it decides by dgsf.core.scaling which worker gets the next call and
when another worker is wanted; it starts none itself.  Everything that takes time (leases, processes, the
database) is behind the `LaneHost` that owns it.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from dgsf.clock import Clock
from dgsf.core import scaling
from dgsf.core.counting import counted
from dgsf.errors import ConnectionLost, DgsfError, FunctionCancelled
from dgsf.store.catalogue import Function
from dgsf.wire.messages import Failure, RunEnd
from dgsf.wire.ports import Payload
from proxy.call import ActiveCall
from proxy.losses import verdict
from proxy.post import name_of
from proxy.worker_link import WorkerLink

RETRY_AFTER_S = (1.0, 60.0)


class LaneHost(Protocol):
    """What a lane asks of its proxy."""

    def start_worker(self, lane: Lane) -> None: ...

    def call_over(self, lane: Lane, call: ActiveCall, payload: Payload | None, failure: Failure | None) -> None: ...

    def ran(self, lane: Lane, link: WorkerLink, run_us: int) -> None: ...

    def lost_worker(self, lane: Lane, link: WorkerLink, error: DgsfError) -> None: ...

    def may_dispatch(self, link: WorkerLink, now_us: int) -> bool: ...


class Lane:
    """One function version on this proxy."""

    def __init__(self, host: LaneHost, function: Function, clock: Clock, pipeline_depth: int) -> None:
        self.version = function.version
        self.options = function.options
        self.queue: deque[ActiveCall] = deque()
        self.links: list[WorkerLink] = []
        self.starting = 0
        self.starved = False  # wants a worker that the pool has no room for
        self.lack = ""  # why the last one could not be started; empty: it was
        self.name = name_of(self.version.tenant_id, self.version.name)  # of all versions alike
        self.used_us = clock.now_us()
        self._host = host
        self._clock = clock
        # The device time of a session is not told by calls: only one at a time can be billed exactly.
        self._limit = 1 if function.options.over_fabric else pipeline_depth
        self._run_time = scaling.RunTime()
        self.run_times = scaling.RunTimes()
        self._reached: set[int] = set()  # how many workers were busy when one more got busy
        self._timeout_us = function.options.timeout_us

    # --- calls in
    def submit(self, call: ActiveCall) -> None:
        if not call.timeout_us or call.timeout_us > self._timeout_us:
            call.timeout_us = self._timeout_us
        self._line_up(call)
        self.pump()

    def _line_up(self, call: ActiveCall) -> None:
        """By priority, then by who must start first; those of one deadline in the order of their arrival."""
        queue, urgency = self.queue, (call.request.priority, -call.dead_us)
        position = len(queue)
        while position and (queue[position - 1].request.priority, -queue[position - 1].dead_us) < urgency:
            position -= 1
        queue.insert(position, call)

    def pump(self) -> None:
        """Give waiting calls to workers, and ask for more workers if that is not enough."""
        now = self.used_us = self._clock.now_us()
        queue = self.queue
        while queue:
            if queue[0].unwanted:
                self._host.call_over(self, queue.popleft(), None, Failure.of(FunctionCancelled()))
                continue
            if queue[0].late(now):
                call = queue.popleft()
                self._host.call_over(self, call, None, Failure.of(call.missed(now, self.waits_for)))
                continue
            link = self._pick(now)
            if link is None:
                break
            self._dispatch(link, now)
        if queue and not self.starved:
            for _ in range(self._wanted()):
                self.starting += 1
                self._host.start_worker(self)

    def _dispatch(self, link: WorkerLink, now_us: int) -> None:
        call = self.queue.popleft()
        if not link.inflight:
            self._reached.add(1 + sum(1 for other in self.links if other.inflight))
        try:
            link.dispatch(call, now_us)
        except (OSError, DgsfError) as error:  # its folder or its connection is gone, it just does not know yet
            self.queue.appendleft(call)
            link.close(ConnectionLost(f"the worker cannot be reached: {error}"))

    def _pick(self, now_us: int) -> WorkerLink | None:
        """The first worker that is hardly busy, else the least busy one with room."""
        packed = scaling.pack(self._run_time, self._limit)
        best, fewest = None, scaling.depth(self._run_time, self._limit)
        for link in self.links:
            waiting = len(link.inflight)
            if waiting < fewest and link.available and self._host.may_dispatch(link, now_us):
                if waiting < packed:
                    return link
                best, fewest = link, waiting
        return best

    def _wanted(self) -> int:
        running = sum(len(link.inflight) for link in self.links)
        return scaling.more_workers(
            len(self.queue), running, len(self.links), self.starting, self.options.max_workers, self._run_time
        )

    # --- workers
    def worker_ready(self, link: WorkerLink) -> None:
        self.lack = ""
        if not link.lost:
            self.links.append(link)
        self.pump()

    def calls_ended(self, link: WorkerLink, ended: list[tuple[ActiveCall, RunEnd, Payload | None, int]]) -> None:
        for call, end, payload, device_us in ended:
            self._run_time.saw(end.run_us)
            self.run_times.saw(link.post.device.type, end.run_us)
            if end.failure is None:
                self._host.ran(self, link, end.run_us)
            link.bill(call, device_us)
            self._host.call_over(self, call, payload, verdict(end.failure, link.session))
        self.pump()

    def worker_lost(self, link: WorkerLink, error: DgsfError) -> None:
        if link in self.links:
            self.links.remove(link)
        self._host.lost_worker(self, link, error)

    def take_back(self, calls: list[ActiveCall]) -> None:
        """Calls that a lost worker never looked at go to the front of the queue, in order."""
        for call in reversed(calls):
            call.life.requeue_unstarted()
            self.queue.appendleft(call)

    def take_reached(self) -> set[int]:
        """How many of its workers were busy at once when calls came since this was last asked."""
        reached, self._reached = self._reached, set()
        return reached

    @property
    def run_s(self) -> float:
        """What one call is expected to take; 0: not known."""
        return self._run_time.expected_us / 1e6 if self._run_time.known else 0.0

    @property
    def retry_after_s(self) -> float:
        """When there should be room again for who is refused: by then the workers have done what waits now."""
        least, most = RETRY_AFTER_S
        return min(max(least, len(self.queue) * self.run_s / max(1, len(self.links))), most)

    def deadline_s(self, now_us: int) -> float | None:
        """By when the first waiting call should have been done, from now on; None: nobody waits."""
        if not self.queue:
            return None
        return max(0, self.queue[0].dead_us - now_us + self.queue[0].timeout_us) / 1e6

    @property
    def waits_for(self) -> str:
        """What keeps its calls waiting, for one that has waited too long."""
        if self.lack:
            return f"a worker: {self.lack}"
        if self.starting:
            return "a worker that is being started; a longer start deadline would have done"
        busy, most = len(self.links), self.options.max_workers
        way_out = "; raise max_workers= for more" if most and busy >= most else ""
        waiting = counted(len(self.queue) + 1, "call")
        return f"its turn: {waiting} waited for {counted(busy, 'busy worker')}{way_out}"

    @property
    def running(self) -> int:
        return sum(len(link.inflight) for link in self.links)

    @property
    def unused(self) -> bool:
        return not (self.queue or self.links or self.starting)
