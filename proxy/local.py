"""The proxy itself: calls come in, find their lane, and their outcomes are recorded.

It runs inside a single gateway's process or behind a socket (proxy.server); both ways it is the same object.
It owns the lanes and everything that takes time on their behalf.  One slow tick looks after deadlines,
timeouts and idle workers, and rests while there is none of it; nothing on the path of a call sets a timer of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any

from dgsf.clock import Clock, SystemClock
from dgsf.config import Settings
from dgsf.core.invocation import State
from dgsf.core.retry import try_again
from dgsf.errors import (
    DgsfError,
    FunctionCancelled,
    NoDevice,
    OutcomeUnknown,
    PlatformError,
    QueueFull,
    ShuttingDown,
    StoreUnavailable,
)
from dgsf.store.catalogue import Catalogue, Function
from dgsf.store.rows import LeaseGrant, Outcome
from dgsf.wire.messages import Failure, Interrupt, Kill, WorkerExit
from dgsf.wire.ports import CallRequest, CallResult, CallStream, Payload
from proxy.call import ActiveCall
from proxy.directory import Directory
from proxy.keeping import Keeping
from proxy.lane import Lane
from proxy.leases import LeaseKeeper
from proxy.losses import failure_of_exit, with_its_time
from proxy.measuring import Measurable, Measuring
from proxy.recorder import Recorder
from proxy.resting import rest_us
from proxy.room import RoomMaker
from proxy.sessions.hub import SessionHub
from proxy.starter import NoRoom, Starter, Withheld
from proxy.worker_link import WorkerLink

log = logging.getLogger(__name__)
TICK_SECONDS = 0.02
WITHHELD_SECONDS = 5.0  # an operator who takes all devices out of use may be about to restore one
LANE_FORGET_SECONDS = 60.0
DRAIN_SECONDS = 10.0
DRAIN_LOOK_SECONDS = 1.0


class LocalProxy:
    """A CallPort over leased workers."""

    def __init__(
        self,
        settings: Settings,
        catalogue: Catalogue,
        directory: Directory,
        leases: LeaseKeeper,
        starter: Starter,
        recorder: Recorder,
        number: int,
        clock: Clock | None = None,
    ) -> None:
        self.number = number
        self.lanes: dict[int, Lane] = {}
        self.recorder = recorder
        self._settings = settings
        self._catalogue = catalogue
        self._directory = directory
        self._leases = leases
        self._starter = starter
        self._clock = clock or SystemClock()
        self.keeping = Keeping(self, starter, self._clock, settings.idle_seconds, settings.fixed_idle_seconds)
        self.distances = starter.distances
        self._measuring = Measuring(self._clock, starter.no_farther)
        self.room = RoomMaker(self.lanes, starter, self._clock, self.keeping.least_wanted, self.keeping.victim)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ticker: asyncio.Task[None] | None = None
        self._stirred = asyncio.Event()  # something came for the tick to look after
        self._drain_watch: asyncio.Task[None] | None = None
        self._draining: frozenset[int] = frozenset()  # devices whose workers get nothing new and go when idle
        self._closing = False
        self.sessions: SessionHub | None = None  # only of a proxy in a process of its own
        leases.watch(self._lease_lost)

    # --- life
    async def start(self) -> None:
        self.recorder.start()
        self._leases.start()
        self.later(self._reclaim())
        if self.sessions is not None:
            self.sessions.start()
        self._ticker = asyncio.create_task(self._tick_forever())
        self._drain_watch = asyncio.create_task(self._watch_drains())

    async def stop(self) -> None:
        """Refuse new calls, let running ones end, give all workers and leases back, flush."""
        self._closing = True
        await self._drained()
        if self.sessions is not None:
            await self.sessions.stop()
        for task in (self._ticker, self._drain_watch):
            if task is not None:
                task.cancel()
        links = [link for lane in self.lanes.values() for link in list(lane.links)]
        await asyncio.gather(*(self._starter.give_back(link) for link in links), return_exceptions=True)
        await self._leases.stop()
        await self.recorder.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._directory.close()

    async def _drained(self) -> None:
        deadline = self._clock.now_us() + int(DRAIN_SECONDS * 1e6)
        while self._clock.now_us() < deadline:  # a look per tick is enough at the end of a life
            if not any(lane.queue or lane.running for lane in self.lanes.values()):
                break
            await asyncio.sleep(TICK_SECONDS)

    # --- CallPort
    def number_for(self, version_id: int) -> int:
        return self.number

    def open(self, request: CallRequest) -> CallStream:
        """Take a call; whatever becomes of it is told by the stream."""
        stream = CallStream(lambda: self._cancel(call))
        call = ActiveCall(request, stream, self._clock.now_us(), self._clock.wall())
        if self._closing:
            self._refuse(call, ShuttingDown())
        elif not self.recorder.available:
            self._refuse(call, StoreUnavailable())
        elif (lane := self.lanes.get(request.version_id)) is not None:
            self._enter(lane, call)
        else:
            self.later(self._enter_new(call))
        return stream

    def _enter(self, lane: Lane, call: ActiveCall) -> None:
        if call.unwanted:
            self._refuse(call, FunctionCancelled())
        elif len(lane.queue) >= self._settings.queue_limit:
            told = f"{len(lane.queue)} calls wait for {lane.version.name} already"
            self._refuse(call, QueueFull(told, retry_after=lane.retry_after_s))
        else:
            self._stirred.set()
            lane.submit(call)

    async def _enter_new(self, call: ActiveCall) -> None:
        """The first call of a version on this proxy: read how it wants to be run."""
        try:
            deployed = await self._catalogue.version(call.request.version_id)
        except DgsfError as error:
            self._refuse(call, error)
        else:
            self._enter(self._lane_of(deployed), call)

    def _lane_of(self, deployed: Function) -> Lane:
        version_id = deployed.version.version_id
        if version_id not in self.lanes:
            self.lanes[version_id] = Lane(self, deployed, self._clock, self._settings.pipeline_depth)
        return self.lanes[version_id]

    def _refuse(self, call: ActiveCall, error: DgsfError) -> None:
        """Not accepted: nothing ran, nothing is recorded."""
        call.request.payload.discard()
        call.stream.finish(CallResult("failed", None, Failure.of(error)))

    def _cancel(self, call: ActiveCall) -> None:
        """The caller went away: a waiting call is dropped, a running one asked to stop, one between the two noted."""
        call.cancelled = True
        lane = self.lanes.get(call.request.version_id)
        if lane is None:
            return
        if call in lane.queue:
            lane.queue.remove(call)
            self.recorder.finish(call, None, Failure.of(FunctionCancelled()))
            return
        for link in lane.links:
            if link.inflight and any(call is one for _, one in link.inflight):
                self._look_at(link, self._clock.now_us())

    # --- LaneHost
    def may_dispatch(self, link: WorkerLink, now_us: int) -> bool:
        return self._leases.usable(link.post.lease, now_us) and link.post.device.id not in self._draining

    def start_worker(self, lane: Lane) -> None:
        self.later(self._start(lane))

    def ran(self, lane: Lane, link: WorkerLink, run_us: int) -> None:
        """A call has done well: how fast its function is on that type of device."""
        self._starter.ran(lane, link.post.device, run_us / 1e6)

    def call_over(self, lane: Lane, call: ActiveCall, payload: Payload | None, failure: Failure | None) -> None:
        if failure is not None and not call.cancelled and self._tries_again(lane, call, failure):
            self.later(self._try_again(lane, call, failure))
        else:
            told = failure and with_its_time(failure, call.timeout_us, lane.options.timeout_us)
            self.recorder.finish(call, payload, told)

    def lost_worker(self, lane: Lane, link: WorkerLink, error: DgsfError) -> None:
        calls = [call for _, call in link.inflight]
        link.inflight.clear()
        begun = len(calls) if link.cut else 1  # a worker that we cut off may have answered what we did not read
        lane.take_back(calls[begun:])
        self._stirred.set()
        self.later(self._bury(lane, link, calls[:begun]))
        lane.pump()

    # --- workers come and go
    async def _start(self, lane: Lane) -> None:
        try:
            link = await self._starter.start(lane)
        except Exception as error:
            try:
                await self._not_started(lane, error)
            finally:
                lane.starting -= 1  # only now: room is made for one worker at a time
            lane.pump()
        else:
            lane.starting -= 1
            self.room.served(lane)
            lane.worker_ready(link)

    async def _not_started(self, lane: Lane, error: Exception) -> None:
        """No worker: wait for room or a device, or tell the callers what their function or the store lacks."""
        lane.lack = str(error)
        if isinstance(error, NoRoom):
            await self.room.make_for(lane, error.short_nodes)
        elif isinstance(error, DgsfError) and (isinstance(error, StoreUnavailable) or error.status != NoDevice.status):
            self._fail_queue(lane, error)
        else:
            log.warning("worker_start_failed", extra={"version": lane.version.version_id, "error": str(error)})
            self.room.wait_for_device(lane, isinstance(error, Withheld))

    async def _bury(self, lane: Lane, link: WorkerLink, begun: list[ActiveCall]) -> None:
        """A worker is gone: find out why, answer for what it was running, give its slot back."""
        if link.leaving and not begun:
            return
        notice = None if link.cut else await self._directory.exit_of(link.post.device, link.post.worker_id)
        await self._starter.end_session(link)
        for call in begun:
            self._answer_for_lost(lane, link, call, self._loss(link, call, notice))
        if not link.leaving:
            if notice is None:  # it may still run: only a dead worker's slot is free
                await self._starter.end_worker(link, "lost")
            else:
                await self._starter.end_worker(link, "lost", gone=True)
        lane.pump()

    @staticmethod
    def _loss(link: WorkerLink, call: ActiveCall, notice: WorkerExit | None) -> DgsfError:
        if link.killing is not None and link.killing is not call:  # the kill was meant for the call before
            return OutcomeUnknown("the worker was ended for the sake of another call")
        return failure_of_exit(notice)

    def _answer_for_lost(self, lane: Lane, link: WorkerLink, head: ActiveCall, error: DgsfError) -> None:
        if error.billable:
            link.bill(head, link.stop_clock(self._clock.now_us()))
        self.call_over(lane, head, None, Failure.of(error))

    def _lease_lost(self, grant: LeaseGrant) -> None:
        for lane in self.lanes.values():
            for link in list(lane.links):
                if link.post.lease == grant:
                    link.close(OutcomeUnknown("the lease on the device was lost"))

    async def _reclaim(self) -> None:
        try:
            freed = await self._starter.reclaim()
        except PlatformError as error:
            log.info("reclaim_failed", extra={"error": str(error)})
        else:
            log.info("reclaimed", extra={"slots": freed})

    def use_sessions(self, sessions: SessionHub) -> None:
        """Before it starts: it can then run functions whose device is remote, and ends their sessions with itself."""
        self.sessions = self._starter.sessions = sessions

    async def _watch_drains(self) -> None:
        while True:
            await asyncio.sleep(DRAIN_LOOK_SECONDS)
            # Also without workers: whoever comes after a restore must not meet the drain of before.
            if self._draining or any(lane.links for lane in self.lanes.values()):
                with contextlib.suppress(PlatformError):
                    before, self._draining = self._draining, await self._directory.draining()
                    if self._draining != before:
                        self._stirred.set()

    def yield_slot(self) -> None:
        """Another proxy is short of slots."""
        self.later(self.room.yield_one())

    def measure_again(self) -> None:
        """How far devices are, on links that have nothing better to do; at most a few at once."""
        links: list[Measurable] = [link for lane in self.lanes.values() for link in lane.links]
        if self.sessions is not None:
            links += self.sessions.device_links()
        self._measuring.look(link for link in links if link.may_echo)

    # --- attempts
    def _tries_again(self, lane: Lane, call: ActiveCall, failure: Failure) -> bool:
        return not self._closing and try_again(failure.code, call.life.attempt, lane.options.retries)

    async def _try_again(self, lane: Lane, call: ActiveCall, failure: Failure) -> None:
        call.life.to(State.queued, failure.code)
        try:
            outcome = await self.recorder.next_attempt(call)
        except DgsfError as error:
            self.recorder.finish(call, None, Failure.of(error))
            return
        if outcome == Outcome.stale:
            self.recorder.finish(call, None, Failure.of(OutcomeUnknown()))
        elif call.unwanted:
            self.recorder.finish(call, None, Failure.of(FunctionCancelled()))
        else:
            lane.queue.appendleft(call)
            self._stirred.set()
            lane.pump()

    def _fail_queue(self, lane: Lane, error: DgsfError) -> None:
        waiting, failure, now_us = list(lane.queue), Failure.of(error), self._clock.now_us()
        lane.queue.clear()
        for call in waiting:
            call.waited(now_us)
            self.recorder.finish(call, None, failure)

    # --- the tick
    async def _tick_forever(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            await self._rest()
            now = self._clock.now_us()
            for work in (
                *(partial(self._tick, lane, now) for lane in self.lanes.values()),
                partial(self.room.tick, now),
                *((partial(self.keeping.tick, now),) if not self._closing else ()),
            ):
                try:
                    work()
                except Exception:  # one lane's trouble is not the others'
                    log.exception("tick_failed")

    async def _rest(self) -> None:
        """Until a call comes or the time of an idle worker, if there is nothing else to look after."""
        rest = rest_us(self.lanes.values(), self._draining, self.keeping.idle_until_us, self._clock.now_us())
        if rest > TICK_SECONDS * 1e6:
            self._stirred.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest / 1e6):
                    await self._stirred.wait()

    def _tick(self, lane: Lane, now_us: int) -> None:
        if lane.queue:
            self._look_at_queue(lane, now_us)
            lane.pump()  # whatever woke nobody is found here
        for link in list(lane.links):
            if link.inflight:
                self._look_at(link, now_us)
            elif self._has_served(lane, link, now_us):
                self.retire(lane, link)
        if lane.unused and now_us - lane.used_us > LANE_FORGET_SECONDS * 1e6:
            del self.lanes[lane.version.version_id]

    def _has_served(self, lane: Lane, link: WorkerLink, now_us: int) -> bool:
        """Whether an idle worker should go."""
        long = self.keeping.idle_long(lane, link, now_us)
        return long or link.worn_out or link.post.device.id in self._draining

    def _look_at_queue(self, lane: Lane, now_us: int) -> None:
        if not self.recorder.available:
            self._fail_queue(lane, StoreUnavailable())
        elif self.room.withheld_us(lane, now_us) > WITHHELD_SECONDS * 1e6:
            self._fail_queue(lane, NoDevice(lane.lack))
        else:
            for call in [call for call in lane.queue if call.late(now_us)]:
                lane.queue.remove(call)
                self.recorder.finish(call, None, Failure.of(call.missed(now_us, lane.waits_for)))

    def _look_at(self, link: WorkerLink, now_us: int) -> None:
        """Stop the running call if its time is up or nobody wants it; kill the worker if it does not stop."""
        call = link.inflight[0][1]
        reason = "cancel" if call.cancelled else "timeout"
        if link.stopping_since_us:
            if now_us - link.stopping_since_us > self._settings.grace_seconds * 1e6 and link.killing is None:
                link.killing = call
                self.later(self._kill(link, reason))
        elif call.cancelled or link.overdue(call, now_us):
            link.stopping_since_us = now_us
            order = Interrupt(
                link.post.worker_id, call.request.id.bytes, reason, int(self._settings.grace_seconds * 1000) or 1
            )
            self.later(self._directory.order(link.post.device, order))

    async def _kill(self, link: WorkerLink, reason: str) -> None:
        if not await self._directory.order(link.post.device, Kill(link.post.worker_id, reason)):
            link.killing = None  # the next tick tries again

    # --- KeepingHost
    async def lane_by_name(self, tenant_id: int, name: str) -> Lane:
        """The lane of the version that calls get now; NotFound if there is no such function any more."""
        return self._lane_of(await self._catalogue.function(tenant_id, name))

    def retire(self, lane: Lane, link: WorkerLink) -> None:
        lane.links.remove(link)
        self.later(self._starter.give_back(link))

    def later(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task_failed", exc_info=error)
