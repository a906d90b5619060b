"""Makes room in a full pool: idle workers of other functions are given up, the least wanted first.

A lane that finds no room is starved: it asks again only after a while, or as soon as something was given
back here.  Slots that other proxies hold idle are asked for by a notification.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from dgsf.clock import Clock
from dgsf.core.devices import HOST
from dgsf.core.placement import DeviceView, Request, could_ever_fit, preference
from dgsf.errors import PlatformError
from dgsf.store.views import view_of
from proxy.lane import Lane
from proxy.placing import Outlook
from proxy.starter import Starter
from proxy.worker_link import WorkerLink

log = logging.getLogger(__name__)
HUNGRY_US = 50_000  # a lane without any worker asks again after this
CONTENT_US = 500_000  # one that has some already
ECHO_US = 3_000_000  # after asking others for a slot, one's own request is heard again within this
SETTLED_US = 1_000_000  # a lane with workers takes the slot only of one that has been idle for this long
Idle = tuple[Lane, WorkerLink]


class RoomMaker:
    """Who waits for room, and whose room can be had."""

    def __init__(
        self,
        lanes: dict[int, Lane],
        starter: Starter,
        clock: Clock,
        least_wanted: Callable[[list[Idle]], Idle],
        victim: Callable[[list[Idle]], Idle | None],
    ) -> None:
        """`least_wanted`: who goes if one must; `victim`: who goes rather than that another device is opened."""
        self._least_wanted = least_wanted
        self._victim = victim
        starter.instead_of_opening = self.instead_of_opening
        self._lanes = lanes
        self._starter = starter
        self._clock = clock
        self._again_us: dict[Lane, int] = {}
        self._withheld_since: dict[Lane, int] = {}
        self._asked_us = -ECHO_US
        self.ask_others: Callable[[], Awaitable[None]] | None = None

    async def make_for(self, lane: Lane, short_nodes: frozenset[str] = frozenset()) -> None:
        """The pool is full, or these nodes' processors: give up an idle worker, or a lost holder's slot, or wait."""
        self._withheld_since.pop(lane, None)
        victim = self._idlest(lane, short_nodes=short_nodes)
        if victim is not None:
            await self._give_up(*victim)
            return
        self._wait(lane)
        try:
            if await self._starter.reclaim():
                self._wake(lane)
            elif not lane.links and self.ask_others is not None:
                self._asked_us = self._clock.now_us()
                await self.ask_others()
        except PlatformError as error:
            log.info("reclaim_failed", extra={"error": str(error)})

    async def instead_of_opening(
        self, lane: Lane, request: Request, outlook: Outlook, opened: DeviceView
    ) -> int | None:
        """Gives up an idle worker of whose device as much is thought as of the one in no use, if keep-warm says so."""
        free = {node.name: node.free_cpu_milli for node in outlook.nodes}
        views = {view.id: view for view in outlook.views if preference(request, view) == preference(request, opened)}

        def would_do(owner: Lane, link: WorkerLink) -> bool:
            view = views.get(link.post.device.id)
            if view is None or not view.healthy or not could_ever_fit(request, view):
                return False
            processors = free.get(view.node, view.node_cpu_milli) + owner.options.cpu_milli
            memory = view.free_memory + owner.options.memory
            return memory >= request.memory_bytes and processors >= request.cpu_milli

        victim = self._victim(self._idle(lane, would_do, SETTLED_US if lane.links else 0))
        if victim is None:
            return None
        await self._give_up(*victim)
        return victim[1].post.device.id

    async def make_for_session(self, request: Request) -> None:
        """The same for a session that finds no device; it looks again by itself, and however many do ask as one."""
        victim = self._idlest(None, request)
        if victim is not None:
            await self._give_up(*victim)
            return
        now = self._clock.now_us()
        if now - self._asked_us >= CONTENT_US:
            self._asked_us = now
            if not await self._starter.reclaim() and self.ask_others is not None:
                await self.ask_others()

    async def yield_one(self) -> None:
        """Another proxy is short of slots: give up the least wanted idle worker, if there is one."""
        if self._clock.now_us() - self._asked_us < ECHO_US:
            return  # that was our own voice: who waits for room has none to give
        victim = self._idlest(None)
        if victim is not None:
            await self._give_up(*victim)

    def wait_for_device(self, lane: Lane, withheld: bool) -> None:
        """None takes work. One that is lost or starting may come; `withheld`: by an operator's wish, none will."""
        if withheld:
            self._withheld_since.setdefault(lane, self._clock.now_us())
        else:
            self._withheld_since.pop(lane, None)
        self._wait(lane)

    def withheld_us(self, lane: Lane, now_us: int) -> int:
        """For how long nothing has been left for it but what operators took out of use."""
        since = self._withheld_since.get(lane)
        return 0 if since is None else now_us - since

    def served(self, lane: Lane) -> None:
        self._withheld_since.pop(lane, None)

    def tick(self, now_us: int) -> None:
        for lane in [lane for lane, again in self._again_us.items() if now_us >= again]:
            self._wake(lane)

    def _wait(self, lane: Lane) -> None:
        lane.starved = True
        self._again_us[lane] = self._clock.now_us() + (CONTENT_US if lane.links else HUNGRY_US)

    def _wake(self, lane: Lane) -> None:
        self._again_us.pop(lane, None)
        lane.starved = False
        if lane.queue:
            lane.pump()
        else:
            self._withheld_since.pop(lane, None)

    def _idlest(
        self, wanting: Lane | None, request: Request | None = None, short_nodes: frozenset[str] = frozenset()
    ) -> Idle | None:
        """The least wanted idle worker whose device, or whose processors, would do for who wants one."""
        at_least = SETTLED_US if (wanting is None and request is None) or (wanting and wanting.links) else 0
        if wanting is not None:
            request = Request(wanting.options.worker_types, wanting.options.memory)

        def would_do(lane: Lane, link: WorkerLink) -> bool:
            return _frees_processors(lane, link, short_nodes) if short_nodes else _would_do(request, link)

        idle = self._idle(wanting, would_do, at_least)
        return self._least_wanted(idle) if idle else None

    def _idle(self, wanting: Lane | None, would_do: Callable[[Lane, WorkerLink], bool], at_least_us: int) -> list[Idle]:
        now = self._clock.now_us()
        return [
            (lane, link)
            for lane in self._lanes.values()
            if lane is not wanting and not lane.queue
            for link in lane.links
            if not link.inflight and now - link.idle_since_us >= at_least_us and would_do(lane, link)
        ]

    async def _give_up(self, lane: Lane, link: WorkerLink) -> None:
        lane.links.remove(link)
        await self._starter.give_back(link)
        for waiting in list(self._again_us):
            self._wake(waiting)


def _frees_processors(lane: Lane, link: WorkerLink, nodes: frozenset[str]) -> bool:
    return lane.options.cpu_milli > 0 and link.post.device.node in nodes


def _would_do(request: Request | None, link: WorkerLink) -> bool:
    """Whether giving it up could make room; one with a session holds a device somewhere beside its own slot."""
    if request is None or could_ever_fit(request, view_of(link.post.device)):
        return True
    return link.session is not None and bool(link.session.device_name) and request.types != (HOST,)
