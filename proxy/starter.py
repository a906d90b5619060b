"""Starts a worker for a lane: place it, lease a slot, attach to the device server, load the function.

Every step that fails gives back what the steps before it took.  A device that cannot be reached is left out
and the next best one tried.  No room anywhere is not an error: the lane waits until something is given back.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

from dgsf.clock import Clock
from dgsf.core.devices import HOST
from dgsf.core.options import FunctionOptions
from dgsf.core.placement import Chooser, Request
from dgsf.errors import DgsfError, LeaseLost, NoDevice, PlatformError
from dgsf.store.rows import DeviceRow, LeaseGrant
from dgsf.wire.frames import Kind
from dgsf.wire.link import Address, adopt, connect_socket
from dgsf.wire.messages import Attach, Attached, Kill, Reap, encode
from dgsf.wire.shared import SharedArea
from proxy.directory import Directory
from proxy.joining import ask_host, join_worker
from proxy.lane import Lane
from proxy.leases import LeaseKeeper
from proxy.sessions.owner import SessionOwner, SessionPort
from proxy.worker_link import Limits, Post, WorkerLink

log = logging.getLogger(__name__)
LOAD_SECONDS = 60.0


class NoRoom(Exception):
    """Every fitting slot is taken now."""


class Starter:
    """Makes warm workers."""

    def __init__(
        self,
        directory: Directory,
        leases: LeaseKeeper,
        code_of: Callable[[int], Awaitable[bytes]],
        secret: bytes,
        area: SharedArea,
        limits: Limits,
        clock: Clock,
        start_seconds: float = 30.0,
        chooser: Chooser | None = None,
    ) -> None:
        self._chooser = chooser or Chooser()
        self._directory = directory
        self._leases = leases
        self._code_of = code_of
        self._secret = secret
        self._area = area
        self._limits = limits
        self._clock = clock
        self._start_seconds = start_seconds
        self.sessions: SessionPort | None = None  # only a proxy in a process of its own has them

    async def start(self, lane: Lane) -> WorkerLink:
        """A worker that has loaded the lane's function; NoRoom, or an error that its calls should get."""
        code = asyncio.ensure_future(self._code_of(lane.version.version_id))
        try:
            device, grant = await self._lease(lane)
            link = await self._attach(lane, device, grant)
            try:
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
        )

    async def end_session(self, link: WorkerLink) -> None:
        """Its device is free when this returns."""
        if link.session is not None:
            await link.session.close()

    async def end_worker(self, link: WorkerLink, reason: str) -> None:
        """Kill it and release its slot; a slot whose worker may still run is left to whoever takes it over."""
        await self.end_session(link)
        ended = await self._directory.order(link.post.device, Kill(link.post.worker_id, reason))
        self._directory.forget_exit(link.post.device, link.post.worker_id)
        if ended:
            await self._leases.release(link.post.lease)
        else:
            self._leases.forget(link.post.lease)

    async def reclaim(self) -> int:
        """Free the slots of holders that are gone; returns how many."""
        freed = 0
        _, rows = await self._directory.pool()
        for lease in await self._leases.reclaimable():
            device = rows.get(lease.device_id)
            if device is None or not await self._directory.order(device, Reap(lease.slot, lease.epoch)):
                continue
            freed += await self._leases.take_over(lease)
        return freed

    async def _lease(self, lane: Lane) -> tuple[DeviceRow, LeaseGrant]:
        version, options = lane.version, lane.options
        request = Request(options.worker_types, options.memory, tenant=str(version.tenant_id), function=version.name)
        views, rows = await self._directory.pool()
        if not any(view.healthy and (view.kind == HOST) == options.over_fabric for view in views):
            raise none_takes_work(options)
        while (chosen := self._chooser.choose(request, views)) is not None:
            grant = await self._leases.grant(chosen.id, version.version_id, version.tenant_id, request.memory_bytes)
            if grant is not None:
                return rows[chosen.id], grant
            views = [view for view in views if view.id != chosen.id]
        raise NoRoom

    async def _attach(self, lane: Lane, device: DeviceRow, grant: LeaseGrant) -> WorkerLink:
        try:
            await self._directory.control(device)
            return await self._connect(lane, device, grant)
        except BaseException:
            await self._leases.release(grant)
            raise

    async def _connect(self, lane: Lane, device: DeviceRow, grant: LeaseGrant) -> WorkerLink:
        if grant.device_incarnation != device.incarnation:
            raise LeaseLost("the device was replaced meanwhile")
        directory = self._directory
        sock = await connect_socket(Address.of(device), self._secret, here=directory.here, tcp=directory.tcp)
        try:
            attached = await self._ask(sock, lane, grant)
        except BaseException:
            sock.close()
            raise
        directory.expect_exit(device, attached.worker_id)
        sharing = sock.family == socket.AF_UNIX
        post = Post(device, grant, attached.worker_id, attached.pid, attached.shared_dir, sharing)
        return await adopt(sock, WorkerLink(post, lane, self._clock, self._area, self._limits))

    async def _ask(self, sock: socket.socket, lane: Lane, grant: LeaseGrant) -> Attached:
        head = Attach(
            holder=self._leases.holder,
            slot=grant.slot,
            epoch=grant.epoch,
            incarnation=grant.device_incarnation,
            tenant_id=lane.version.tenant_id,
            version_id=lane.version.version_id,
            memory_bytes=lane.options.memory,
            network=lane.options.network,
        )
        return await ask_host(sock, Kind.ATTACH, encode(head))


def none_takes_work(options: FunctionOptions) -> NoDevice:
    """For a function that cannot be started anywhere now."""
    what = "function host" if options.over_fabric else "device"
    return NoDevice(
        f"no {what} takes work now (draining, suspect or lost); see 'dgsf devices', or 'dgsf devices restore NAME'"
    )
