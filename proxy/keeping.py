"""Keeps workers warm in a proxy: looks at them, asks `core.warmth`, gives some back and starts others ahead.

A worker started ahead runs no call and so costs nobody anything.  It is started only while no call waits here, in a
slot that is free or that an idle worker expected much later is given up for, a few at a time; should a call want the
slot later, idle workers are the first to go.  How long starts take is learned.  A function with an idle time of its
own, and all of them under a fixed rule, are simply given back after that time.  How much room there is here is seen
when workers are placed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from statistics import median_low
from typing import Any, Protocol

from dgsf.clock import Clock
from dgsf.core.loads import LoadTimes
from dgsf.core.shadow import Room, Slot, room_of
from dgsf.core.warmth import Ahead, Warm, Warmth
from dgsf.errors import DgsfError, PlatformError
from proxy.lane import Lane
from proxy.placing import Outlook
from proxy.starter import NoRoom, Starter
from proxy.worker_link import WorkerLink

log = logging.getLogger(__name__)
LOOK_US = 500_000
LONGEST_S = 3600.0  # nobody stays idle for longer, whatever is expected
LOAD_S = 1.0  # a worker is started within about this: the first guess
AHEAD_AT_ONCE = 2
AHEAD_PAUSE_US = 1_000_000  # between two starts ahead: each costs a processor some tens of milliseconds
PUT_OFF_US = 30_000_000
ROOM_US = 5_000_000  # how often the room in the pool is counted, at most
SULK_US = 600_000_000  # a function whose start ahead failed is not tried again for this long
TIDY_US = 3_600_000_000  # how often what is known of functions that are forgotten is dropped
Name = tuple[int, str]  # tenant, function


class KeepingHost(Protocol):
    """What it asks of its proxy."""

    @property
    def lanes(self) -> dict[int, Lane]: ...

    async def lane_by_name(self, tenant_id: int, name: str) -> Lane: ...

    def retire(self, lane: Lane, link: WorkerLink) -> None: ...

    def later(self, work: Coroutine[Any, Any, Any]) -> None: ...


@dataclass(slots=True)
class Counts:
    """For the metrics."""

    released: int = 0  # given back because little was expected of them
    ahead: int = 0  # started ahead
    ahead_used: int = 0  # of these, those that got a call


class Keeping:
    """Which workers of one proxy are kept."""

    def __init__(
        self, host: KeepingHost, starter: Starter, clock: Clock, budget_idle_s: float, fixed_idle_s: float | None
    ) -> None:
        """Without a fixed idle time it is learned, for what `budget_idle_s` would cost."""
        self.counts = Counts()
        self._host = host
        self._starter = starter
        self._clock = clock
        self._learned = fixed_idle_s is None
        self._idle_s = budget_idle_s if fixed_idle_s is None else fixed_idle_s
        self._warmth: Warmth | None = None
        self._loads = LoadTimes(LOAD_S)
        starter.on_start = self._loads.saw
        starter.on_look = self._saw_pool
        self._room: Mapping[str, Room] = {}
        self._room_us = -ROOM_US
        self._looked_us = self._tidied_us = 0
        self._newest: dict[str, int] = {}  # the latest version of each function that has a lane here
        self._names: dict[str, Name] = {}
        self._under_way: dict[Ahead, int] = {}  # started ahead since
        self._ahead_us = -AHEAD_PAUSE_US
        self._put_off: dict[Ahead, int] = {}  # to be tried again until then
        self._unused: dict[WorkerLink, int] = {}  # started ahead and without a call so far: ready since
        self._sulking: dict[str, int] = {}  # until when

    def idle_long(self, lane: Lane, link: WorkerLink, now_us: int) -> bool:
        """Whether an idle worker should go because of the time alone."""
        return now_us > self.idle_until_us(lane, link)

    def idle_until_us(self, lane: Lane, link: WorkerLink) -> int:
        """Until when an idle worker may stay, whatever is expected of it."""
        own = lane.options.idle_seconds
        fixed = self._idle_s if own is None else own
        limit = max(fixed, LONGEST_S) if self._is_learned(lane) else fixed
        return link.idle_since_us + int(limit * 1e6)

    def tick(self, now_us: int) -> None:
        if self._learned and now_us - self._looked_us >= LOOK_US:
            self._looked_us = now_us
            self._look(now_us)

    def least_wanted(self, idle: list[tuple[Lane, WorkerLink]]) -> tuple[Lane, WorkerLink]:
        """Who makes room: the one expected to be used latest; among equals the least recently used."""
        rates: dict[int, float] = {}
        if self._warmth is not None:
            workers = self._workers()
            now = self._clock.now_us() / 1e6
            rates = {each.key: rate for each, rate in zip(workers, self._warmth.rates(workers, now), strict=True)}
        return min(idle, key=lambda item: (rates.get(id(item[1]), 0.0), item[1].idle_since_us))

    def victim(self, idle: list[tuple[Lane, WorkerLink]]) -> tuple[Lane, WorkerLink] | None:
        """Whose slot a call's new worker takes rather than that of a device in no use; None: it should open that."""
        mine = {id(link): (lane, link) for lane, link in idle if self._is_learned(lane)}
        if self._warmth is None or not mine:
            return None
        key = self._warmth.victim(self._workers(), mine.keys(), self._clock.now_us() / 1e6)
        return None if key is None else mine[key]

    # --- looking
    def _look(self, now_us: int) -> None:
        self._newest = self._latest()
        links = {id(link): (lane, link) for lane in self._mine() for link in lane.links}
        if self._warmth is None:
            if not links:
                return
            slots = median_low([max(1, link.post.device.slots) for _, link in links.values()])
            self._warmth = Warmth(slots, self._loads, self._idle_s)
        if now_us - self._tidied_us >= TIDY_US:
            self._tidied_us = now_us
            self._tidy(self._warmth, now_us)
        self._warmth.there_is(self._room)
        self._count_used()
        self._put_off = {order: until for order, until in self._put_off.items() if now_us < until}
        for order in (*self._put_off, *self._warmth.look(self._workers(), self._reached(), now_us / 1e6)):
            if isinstance(order, Ahead):
                self._start_ahead(order, now_us)
            elif order.key in links and not links[order.key][0].queue:
                self._release(*links[order.key])

    def _latest(self) -> dict[str, int]:
        """Versions are newer the later they were made; an earlier one's lane may outlive that of a later one."""
        latest: dict[str, int] = {}
        for lane in self._host.lanes.values():
            before = latest.get(lane.name) or self._newest.get(lane.name, 0)
            latest[lane.name] = max(lane.version.version_id, before)
        return latest

    def _tidy(self, warmth: Warmth, now_us: int) -> None:
        """What the rule has forgotten is not started ahead any more, so its name is not needed."""
        self._names = {name: whose for name, whose in self._names.items() if warmth.remembers(name)}
        self._sulking = {name: until for name, until in self._sulking.items() if now_us < until}

    def _saw_pool(self, outlook: Outlook) -> None:
        """Counts what workers that are kept here could have at most: what they have, and what nobody has."""
        now_us = self._clock.now_us()
        if now_us - self._room_us < ROOM_US:
            return
        self._room_us = now_us
        own = Counter(link.post.device.id for lane in self._mine() for link in lane.links)
        views = (view for view in outlook.views if view.healthy)
        self._room = room_of((view.type, view.slots, view.free_slots, own[view.id]) for view in views)

    def _mine(self) -> list[Lane]:
        return [lane for lane in self._host.lanes.values() if self._is_learned(lane)]

    def _is_learned(self, lane: Lane) -> bool:
        """Not those with an idle time of their own, nor earlier versions, which will not be called again."""
        newest = self._newest.get(lane.name, 0) <= lane.version.version_id
        return self._learned and lane.options.idle_seconds is None and newest

    def _workers(self) -> list[Warm]:
        found = [
            Warm(
                id(link),
                lane.name,
                link.post.device.id,
                None if link.inflight else link.idle_since_us / 1e6,
                Slot.one_of(link.post.device.slots, link.post.device.type),
            )
            for lane in self._mine()
            for link in lane.links
        ]
        on_device = {each.device: each.slot for each in found}
        coming = [
            Warm(0, order.function, order.device, since / 1e6, on_device.get(order.device))
            for order, since in self._under_way.items()
            if order.device is not None
        ]
        return found + coming

    def _reached(self) -> dict[str, set[int]]:
        """How many workers of each function were busy at once when calls came since the last look."""
        found: dict[str, set[int]] = {}
        for lane in self._mine():
            if reached := lane.take_reached():
                found.setdefault(lane.name, set()).update(reached)
                self._names[lane.name] = (lane.version.tenant_id, lane.version.name)
        return found

    def _release(self, lane: Lane, link: WorkerLink) -> None:
        self._not_kept(lane, link)
        self._host.retire(lane, link)

    def _not_kept(self, lane: Lane, link: WorkerLink) -> None:
        self.counts.released += 1
        log.info("worker_not_kept", extra={"function": lane.name, "device": link.post.device.name})
        self._unused.pop(link, None)

    # --- starting ahead
    def _start_ahead(self, order: Ahead, now_us: int) -> None:
        waiting = any(lane.queue for lane in self._host.lanes.values())
        known = order.function in self._names and now_us >= self._sulking.get(order.function, 0)
        soon = now_us - self._ahead_us < AHEAD_PAUSE_US or len(self._under_way) >= AHEAD_AT_ONCE
        if not known or order in self._under_way:
            return
        if waiting or soon:
            if order.device is None:  # of a regular function: it is not said again
                self._put_off.setdefault(order, now_us + PUT_OFF_US)
            elif self._warmth is not None:
                self._warmth.again(order.device)
            return
        self._put_off.pop(order, None)
        self._under_way[order] = self._ahead_us = now_us
        self._host.later(self._ahead(order))

    async def _ahead(self, order: Ahead) -> None:
        try:
            lane = await self._host.lane_by_name(*self._names[order.function])
            there_is_one = order.device is None and lane.links
            if not there_is_one and self._may_have_more(lane) and await self._made_way(order):
                await self._ahead_in(lane, order)
        except PlatformError as error:  # of the moment: it will be wanted again
            log.info("worker_not_ahead", extra={"function": order.function, "error": error.message})
        except DgsfError as error:  # such as a function that is no more, or cannot be loaded
            self._sulk(order, error)
        finally:
            del self._under_way[order]

    async def _made_way(self, order: Ahead) -> bool:
        """Gives up the worker that it displaces; False: that one has got a call, or is gone."""
        if order.displaces is None:
            return True
        for lane in self._mine():
            for link in lane.links:
                if id(link) == order.displaces and link.post.device.id == order.device:
                    if link.inflight or lane.queue:
                        return False
                    lane.links.remove(link)  # at once: no call may get it any more
                    self._not_kept(lane, link)
                    await self._starter.give_back(link)
                    return True
        return False

    async def _ahead_in(self, lane: Lane, order: Ahead) -> None:
        lane.starting += 1  # a call that comes meanwhile waits for this one
        link: WorkerLink | None = None
        try:
            link = await self._starter.start(lane, order.device, ahead=True)
        except NoRoom:
            log.debug("no_room_ahead", extra={"function": order.function})
        finally:
            lane.starting -= 1
            if link is None:
                lane.pump()
        if link is not None:
            self.counts.ahead += 1
            self._unused[link] = link.idle_since_us
            log.info("worker_ahead", extra={"function": order.function, "device": link.post.device.name})
            lane.worker_ready(link)

    def _may_have_more(self, lane: Lane) -> bool:
        most = lane.options.max_workers
        return (
            lane.options.idle_seconds is None
            and (not most or len(lane.links) + lane.starting < most)
            and (not lane.options.over_fabric or self._starter.sessions is not None)
        )

    def _sulk(self, order: Ahead, error: DgsfError) -> None:
        self._sulking[order.function] = self._clock.now_us() + SULK_US
        log.info("worker_not_ahead", extra={"function": order.function, "error": error.message})

    def _count_used(self) -> None:
        for link, ready_us in list(self._unused.items()):
            if link.inflight or link.idle_since_us > ready_us:
                self.counts.ahead_used += 1
                del self._unused[link]
            elif link.lost or link.leaving:
                del self._unused[link]
