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
from dgsf.core.placement import Chooser, Request
from dgsf.errors import ConnectionLost, DgsfError, LeaseLost, NoDevice, PlatformError, ProtocolError
from dgsf.store.rows import DeviceRow, LeaseGrant
from dgsf.wire.frames import Kind, encode_frame
from dgsf.wire.handshake import read_frame
from dgsf.wire.link import Address, adopt, connect_socket
from dgsf.wire.messages import Attach, Attached, Kill, Reap, encode, reader
from dgsf.wire.shared import SharedArea
from proxy.directory import Directory
from proxy.lane import Lane
from proxy.leases import LeaseKeeper
from proxy.worker_link import Limits, Post, WorkerLink

log = logging.getLogger(__name__)
ATTACH_SECONDS = 20.0
LOAD_SECONDS = 60.0
_read_attached = reader(Attached)


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

    async def start(self, lane: Lane) -> WorkerLink:
        """A worker that has loaded the lane's function; NoRoom, or an error that its calls should get."""
        code = asyncio.ensure_future(self._code_of(lane.version.version_id))
        try:
            device, grant = await self._lease(lane)
            link = await self._attach(lane, device, grant)
            try:
                loaded = await link.load(lane.version.version_id, await code, LOAD_SECONDS)
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

    async def end_worker(self, link: WorkerLink, reason: str) -> None:
        """Kill it and release its slot; a slot whose worker may still run is left to whoever takes it over."""
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
        version = lane.version
        request = Request(lane.options.gpu, lane.options.memory, tenant=str(version.tenant_id), function=version.name)
        views, rows = await self._directory.pool()
        if not any(view.healthy for view in views):
            raise NoDevice("no device is healthy now; see 'dgsf devices'")
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
        try:
            await asyncio.get_running_loop().sock_sendall(sock, encode_frame(Kind.ATTACH, 0, encode(head)))
        except OSError as error:
            raise ConnectionLost(f"connection lost: {error}") from error
        frame = await read_frame(sock, ATTACH_SECONDS)
        if frame.kind != Kind.ATTACHED:
            raise ProtocolError(f"expected ATTACHED, got a frame of kind {frame.kind}")
        attached: Attached = _read_attached(frame.body)
        if attached.failure is not None:
            raise attached.failure.error()
        return attached
