"""Finds a device for a session: place it, lease a slot, and have the device server start an executor there.

Every step that fails gives back what the steps before it took.  A device that was just lost, or that cannot be
reached, is tried again only when nothing else has room.  A full pool is waited for until the session's own
deadline; then the error says what is full and what can be done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from dgsf.clock import Clock
from dgsf.core.devices import HOST
from dgsf.core.placement import Chooser, DeviceView, Request, preference, why_not
from dgsf.core.sizes import describe_bytes
from dgsf.errors import (
    ConnectionLost,
    DgsfError,
    DoesNotFit,
    LeaseLost,
    NoDevice,
    PlatformError,
    ProtocolError,
    QueueFull,
    StoreUnavailable,
)
from dgsf.store.rows import DeviceRow, LeaseGrant
from dgsf.wire.frames import Kind, encode_frame
from dgsf.wire.handshake import read_frame
from dgsf.wire.link import Address, connect_socket
from dgsf.wire.messages import Attach, Attached, Kill, encode, reader
from proxy.directory import Directory
from proxy.leases import LeaseKeeper
from proxy.sessions.device_link import DeviceLink, DeviceOwner, SessionPost
from proxy.sessions.owner import SessionOwner

log = logging.getLogger(__name__)
ATTACH_SECONDS = 20.0
LOOK_SECONDS = (0.02, 0.5)  # between two looks at a full pool: first, at most
MAX_WAITING = 256  # sessions that may wait for a device on one proxy
_read_attached = reader(Attached)

MakeRoom = Callable[[Request], Awaitable[None]]


class Opener:
    """Gives sessions their executors, and takes them back."""

    def __init__(
        self,
        directory: Directory,
        leases: LeaseKeeper,
        secret: bytes,
        clock: Clock,
        make_room: MakeRoom,
        chooser: Chooser | None = None,
    ) -> None:
        self._chooser = chooser or Chooser()
        self._directory = directory
        self._leases = leases
        self._secret = secret
        self._clock = clock
        self._make_room = make_room
        self._waiting = 0
        self._freed = asyncio.Event()

    async def open(
        self,
        owner: SessionOwner,
        links: DeviceOwner,
        avoid: frozenset[int],
        *,
        only: str = "",
        seconds: float | None = None,
    ) -> DeviceLink:
        """An executor for this session; `avoid`: devices to try last, `only`: the one device that will do."""
        if self._waiting >= MAX_WAITING:
            raise QueueFull(f"{MAX_WAITING} sessions wait for a device on this proxy already", retry_after=1)
        self._waiting += 1
        try:
            limit = owner.start_seconds if seconds is None else seconds
            return await self._open(owner, links, avoid, only, limit)
        finally:
            self._waiting -= 1

    async def close(self, link: DeviceLink, *, gone: bool = False) -> None:
        """End the executor and release its lease: only in that order is the slot free. `gone`: it has ended."""
        link.close(at_once=True)
        post = link.post
        ended = gone or await self._directory.order(post.device, Kill(post.worker_id, "session over"))
        self._directory.forget_exit(post.device, post.worker_id)
        if ended:
            await self._leases.release(post.lease)
        else:
            self._leases.forget(post.lease)
        freed, self._freed = self._freed, asyncio.Event()
        freed.set()

    # --- looking
    async def _open(
        self, owner: SessionOwner, links: DeviceOwner, avoid: frozenset[int], only: str, seconds: float
    ) -> DeviceLink:
        request = Request(owner.gpu, owner.memory_bytes)
        deadline = self._clock.now_us() + int(seconds * 1e6)
        pause, unreachable, trouble = LOOK_SECONDS[0], set(avoid), ""
        while True:
            freed = self._freed
            views: list[DeviceView] = []
            try:
                views, rows = await self._pool(only)
                link = await self._first_that_works(owner, links, views, rows, unreachable)
                if link is not None:
                    return link
                await self._make_room(request)
            except StoreUnavailable as error:
                trouble = error.message
            if self._clock.now_us() + pause * 1e6 > deadline:
                raise _nothing_free(request, views, seconds, only, trouble)
            await _either(freed, pause)
            pause = min(2 * pause, LOOK_SECONDS[1])

    async def _pool(self, only: str) -> tuple[list[DeviceView], dict[int, DeviceRow]]:
        views, rows = await self._directory.pool()
        devices = [view for view in views if view.kind != HOST]
        return [view for view in devices if not only or rows[view.id].name == only], rows

    async def _first_that_works(
        self,
        owner: SessionOwner,
        links: DeviceOwner,
        views: list[DeviceView],
        rows: dict[int, DeviceRow],
        unreachable: set[int],
    ) -> DeviceLink | None:
        request = Request(owner.gpu, owner.memory_bytes)
        reason = why_not(request, views) if views else None
        if reason is not None:
            raise DoesNotFit(f"no device of the pool can ever hold this session: {reason}")
        left = list(views)
        while (chosen := self._choose(request, left, unreachable)) is not None:
            try:
                return await self._attach(owner, links, rows[chosen.id])
            except (PlatformError, OSError) as error:
                if isinstance(error, StoreUnavailable):
                    raise
                log.info("session_not_attached", extra={"device": rows[chosen.id].name, "error": str(error)})
                unreachable.add(chosen.id)
            left = [view for view in left if view.id != chosen.id]
        return None

    def _choose(self, request: Request, views: list[DeviceView], last: set[int]) -> DeviceView | None:
        """The best device with room; those in `last` only if no other has any."""
        first = [view for view in views if view.id not in last]
        return self._chooser.choose(request, first) or self._chooser.choose(request, views)

    # --- attaching
    async def _attach(self, owner: SessionOwner, links: DeviceOwner, device: DeviceRow) -> DeviceLink:
        grant = await self._leases.grant(device.id, owner.version_id, owner.tenant_id, owner.memory_bytes)
        if grant is None:
            raise NoDevice(f"{device.name} has no room any more")
        try:
            await self._directory.control(device)
            return await self._connect(owner, links, device, grant)
        except BaseException:
            await asyncio.shield(self._leases.release(grant))
            raise

    async def _connect(
        self, owner: SessionOwner, links: DeviceOwner, device: DeviceRow, grant: LeaseGrant
    ) -> DeviceLink:
        if grant.device_incarnation != device.incarnation:
            raise LeaseLost("the device was replaced meanwhile")
        directory, loop = self._directory, asyncio.get_running_loop()
        sock = await connect_socket(Address.of(device), self._secret, here=directory.here, tcp=directory.tcp)
        try:
            frame = encode_frame(Kind.ATTACH, 0, encode(self._words(owner, grant)))
            await loop.sock_sendall(sock, frame)
            answer = await read_frame(sock, ATTACH_SECONDS)
            if answer.kind != Kind.ATTACHED:
                raise ProtocolError(f"expected ATTACHED, got a frame of kind {answer.kind}")
            attached: Attached = _read_attached(answer.body)
            if attached.failure is not None:
                raise attached.failure.error()
            directory.expect_exit(device, attached.worker_id)
            link = DeviceLink(SessionPost(device, grant, attached.worker_id, attached.pid), links)
            await loop.create_connection(lambda: link, sock=sock)
        except OSError as error:
            sock.close()
            raise ConnectionLost(f"connection lost: {error}") from error
        except BaseException:
            sock.close()
            raise
        return link

    def _words(self, owner: SessionOwner, grant: LeaseGrant) -> Attach:
        return Attach(
            holder=self._leases.holder,
            slot=grant.slot,
            epoch=grant.epoch,
            incarnation=grant.device_incarnation,
            tenant_id=owner.tenant_id,
            version_id=owner.version_id or 0,
            memory_bytes=owner.memory_bytes,
            role="session",
        )


async def _either(freed: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await freed.wait()
    except TimeoutError:
        pass


def _nothing_free(request: Request, views: list[DeviceView], waited: float, only: str, trouble: str) -> DgsfError:
    """Why there is no device after all this time, and what to do."""
    wanted = only or " or ".join(request.types)
    after = f"no device for the session after {waited:g} s"
    if not views:
        why = trouble or (f"there is no device {only!r}" if only else "the pool has no device")
        return NoDevice(f"{after}: {why}; see 'dgsf devices'")
    fitting = [view for view in views if preference(request, view) is not None]
    healthy = [view for view in fitting if view.healthy]
    if not healthy:
        return NoDevice(
            f"{after}: of {len(fitting)} devices that would do ({wanted}) none takes sessions now "
            "(draining, suspect or lost); see 'dgsf devices', or 'dgsf devices restore NAME'"
        )
    slots = sum(max(0, view.free_slots) for view in healthy)
    free = max(view.free_memory for view in healthy)
    what = f"all {sum(view.slots for view in healthy)} slots of {wanted} are taken"
    if slots:
        least, asked = describe_bytes(free), describe_bytes(request.memory_bytes)
        what = f"{slots} slots of {wanted} are free, but at most {least} beside them, and {asked} are asked for"
    return QueueFull(f"{after}: {what}; see 'dgsf leases', ask for less memory, or try again later", retry_after=5)
