"""Starts a worker for a lane: place it, lease a slot, attach to the device server, load the function.

Every step that fails gives back what the steps before it took.  A device that cannot be reached is left out
and the next best one tried.  No room anywhere is not an error: the lane waits until something is given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from dgsf.clock import Clock
from dgsf.core.devices import HOST
from dgsf.core.placement import DeviceView, Request, has_slot
from dgsf.errors import DgsfError, NoDevice, PlatformError
from dgsf.store.rows import DeviceRow, LeaseGrant
from dgsf.wire.messages import Reap
from dgsf.wire.shared import SharedArea
from proxy.directory import Directory
from proxy.joining import join_worker
from proxy.lacking import takes_work, what_lacks, withheld
from proxy.lane import Lane
from proxy.leases import LeaseKeeper
from proxy.placing import Outlook
from proxy.post import Want
from proxy.seating import Seating
from proxy.sessions.owner import SessionOwner, SessionPort
from proxy.worker_link import Limits, WorkerLink

log = logging.getLogger(__name__)
LOAD_SECONDS = 60.0


class NoRoom(Exception):
    """Every fitting slot is taken now, or on `short_nodes` there are some but too few processors beside them."""

    def __init__(self, lack: str = "", short_nodes: frozenset[str] = frozenset()) -> None:
        super().__init__(lack)
        self.short_nodes = short_nodes


class Withheld(NoDevice):
    """Every device that would do was taken out of use by an operator."""


# For a worker that would be the first on a device: the device where an idle one was given up for it, or None.
InsteadOfOpening = Callable[[Lane, Request, Outlook, DeviceView], Awaitable[int | None]]


class Starter:
    """Makes warm workers."""

    def __init__(
        self,
        directory: Directory,
        leases: LeaseKeeper,
        seating: Seating,
        code_of: Callable[[int], Awaitable[bytes]],
        secret: bytes,
        area: SharedArea,
        limits: Limits,
        clock: Clock,
        start_seconds: float = 30.0,
    ) -> None:
        self._directory = directory
        self._leases = leases
        self._seating = seating
        self.distances = seating.distances
        self.no_farther = seating.no_farther
        self._code_of = code_of
        self._secret = secret
        self._area = area
        self._limits = limits
        self._clock = clock
        self._start_seconds = start_seconds
        self.sessions: SessionPort | None = None  # only a proxy in a process of its own has them
        self.on_start: Callable[[str, float], None] | None = None  # told of each start: whose, and its seconds
        self.on_look: Callable[[Outlook], None] | None = None  # told of the pool as it is before each
        self.instead_of_opening: InsteadOfOpening | None = None

    async def start(self, lane: Lane, only: int | None = None, *, ahead: bool = False) -> WorkerLink:
        """A worker that has loaded the lane's function; NoRoom, or an error that its calls should get.

        `only`: the one device that will do; `ahead`: no call waits for it, so nobody is given up for it here.
        """
        begun_us = self._clock.now_us()
        code = asyncio.ensure_future(self._code_of(lane.version.version_id))
        try:
            want = self._want(lane)
            device, grant = await self._lease(lane, want, only, ahead=ahead)
            link = await self._seating.attach(
                want,
                device,
                grant,
                lambda post: WorkerLink(post, lane, self._clock, self._area, self._limits),
            )
            try:
                self._seating.measured(device, await link.echo(LOAD_SECONDS))
                if lane.options.over_fabric:
                    await self._join(lane, link)
                alias = lane.options.device_alias
                loaded = await link.load(lane.version.version_id, await code, LOAD_SECONDS, alias)
            except (DgsfError, TimeoutError) as error:
                await self.give_back(link)
                raise PlatformError(f"the worker did not load the function: {error or 'it took too long'}") from error
        finally:
            code.cancel()
        if loaded.failure is not None:
            await self.give_back(link)
            raise loaded.failure.error()
        if self.on_start is not None:
            self.on_start(lane.name, (self._clock.now_us() - begun_us) / 1e6)
        return link

    async def give_back(self, link: WorkerLink) -> None:
        """End a worker and release its lease: only in that order is the slot really free."""
        link.leaving = True
        link.close()
        await self.end_worker(link, "released")

    async def _join(self, lane: Lane, link: WorkerLink) -> None:
        """Give the worker its session: the way to the remote device."""
        if self.sessions is None:
            raise PlatformError("functions over the fabric run in a proxy of their own; start one with 'dgsf proxy'")
        sock = await join_worker(self._directory, self._secret, link.post)
        link.session = await self.sessions.adopt(sock, self._owner_of(lane))

    def _owner_of(self, lane: Lane) -> SessionOwner:
        version, options = lane.version, lane.options
        return SessionOwner(
            version.tenant_id,
            version.version_id,
            options.gpu,
            options.gpu_memory_bytes,
            start_seconds=self._start_seconds,
            function=version.name,
        )

    async def end_session(self, link: WorkerLink) -> None:
        """Its device is free when this returns."""
        if link.session is not None:
            await link.session.close()

    async def end_worker(self, link: WorkerLink, reason: str, *, gone: bool = False) -> None:
        """Kill it and release its slot. `gone`: it has ended by itself."""
        await self.end_session(link)
        await self._seating.end(link.post, reason, gone=gone)

    async def reclaim(self) -> int:
        """Free the slots of holders that are gone; returns how many."""
        freed = 0
        rows, _ = await self._directory.rows_and_leases()
        devices = {row.id: row for row in rows}
        for lease in await self._leases.reclaimable():
            device = devices.get(lease.device_id)
            if device is None or not await self._directory.order(device, Reap(lease.slot, lease.epoch)):
                continue
            freed += await self._leases.take_over(lease)
        return freed

    async def _lease(self, lane: Lane, want: Want, only: int | None, *, ahead: bool) -> tuple[DeviceRow, LeaseGrant]:
        placing = self._seating.placing
        outlook = await placing.look()
        if self.on_look is not None:
            self.on_look(outlook)
        request = placing.request(want)
        if not takes_work(request, outlook):
            kind = Withheld if withheld(request, outlook) else NoDevice
            raise kind(what_lacks(request, outlook))
        if only is not None:
            outlook = outlook.only(only)
        left, may_open = outlook, ahead or only is not None
        while (chosen := placing.choose(request, left)) is not None:
            if not may_open and _in_no_use(chosen) and self.instead_of_opening is not None:
                may_open = True
                freed = await self.instead_of_opening(lane, request, outlook, chosen)
                grant = None if freed is None else await self._seating.lease(want, freed)
                if freed is not None and grant is not None:
                    return outlook.rows[freed], grant
            grant = await self._seating.lease(want, chosen.id)
            if grant is not None:
                return left.rows[chosen.id], grant
            left = left.without([chosen.id])
        raise NoRoom(what_lacks(request, outlook), _short_nodes(request, outlook))

    def ran(self, lane: Lane, device: DeviceRow, seconds: float) -> None:
        version = lane.version
        self._seating.placing.ran((str(version.tenant_id), version.name), device, seconds)

    def _want(self, lane: Lane) -> Want:
        version, options = lane.version, lane.options
        run_s, run_on = lane.run_times.latest
        return Want(
            "function",
            version.tenant_id,
            version.version_id,
            version.name,
            options.worker_types,
            options.memory,
            network=options.network,
            cpu_milli=options.cpu_milli,
            session_bytes=options.gpu_memory_bytes if options.over_fabric else 0,
            guess_s=lane.run_s * len(lane.queue),
            run_s=run_s,
            run_on=run_on,
            deadline_s=lane.deadline_s(self._clock.now_us()),
        )


def _short_nodes(request: Request, outlook: Outlook) -> frozenset[str]:
    """The nodes that have a slot for it; if it asks for processors, those are what they lack."""
    return frozenset(view.node for view in outlook.candidates if request.cpu_milli and has_slot(request, view))


def _in_no_use(device: DeviceView) -> bool:
    """Whether a worker would be the first there; function hosts are in use anyway."""
    return device.kind != HOST and device.free_slots == device.slots
