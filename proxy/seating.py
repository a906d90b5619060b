"""Gives workers and executors their slots: lease, connect to the device server, attach; and takes them back.

The steps are the same for a function's worker and a session's executor; what they do with the connection differs.
Every step that fails gives back what the steps before it took.  A slot is released only when its process has ended;
one whose process may still run is left to whoever takes it over.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TypeVar

from dgsf.core.distance import Distances
from dgsf.errors import ConnectionLost, LeaseLost
from dgsf.store.rows import DeviceRow, LeaseGrant
from dgsf.wire.frames import Kind
from dgsf.wire.link import Address, connect_socket
from dgsf.wire.messages import Attach, Kill, encode
from proxy.directory import Directory
from proxy.joining import ask_host
from proxy.leases import LeaseKeeper
from proxy.placing import Placing
from proxy.post import Post, Want

AnyProtocol = TypeVar("AnyProtocol", bound=asyncio.Protocol)


class Seating:
    """Slots of devices for the processes of one proxy."""

    def __init__(self, directory: Directory, leases: LeaseKeeper, secret: bytes, placing: Placing) -> None:
        self.placing = placing
        self.distances = Distances()
        self._directory = directory
        self._leases = leases
        self._secret = secret

    async def lease(self, want: Want, device_id: int) -> LeaseGrant | None:
        """A slot of this device, or None if it has no room any more."""
        return await self._leases.grant(device_id, want.version_id, want.tenant_id, want.memory_bytes, want.cpu_milli)

    async def attach(
        self, want: Want, device: DeviceRow, grant: LeaseGrant, make: Callable[[Post], AnyProtocol]
    ) -> AnyProtocol:
        """A process in that slot, and the connection to it; `make` says what handles the connection."""
        try:
            await self._directory.control(device)
            link = await self._connect(want, device, grant, make)
        except BaseException:
            await asyncio.shield(self._leases.release(grant))
            raise
        self.placing.took(want, grant)
        return link

    async def end(self, post: Post, reason: str, *, gone: bool = False) -> None:
        """End the process and release its slot: only in that order is it free. `gone`: it has ended already."""
        ended = gone or await self._directory.order(post.device, Kill(post.worker_id, reason))
        self._directory.forget_exit(post.device, post.worker_id)
        self.placing.gave_back(post.lease)
        if ended:
            await self._leases.release(post.lease)
        else:
            self._leases.forget(post.lease)

    def measured(self, device: DeviceRow, round_trip_us: int) -> None:
        """So far is it to a process there."""
        self.distances.saw(device.id, device.incarnation, float(round_trip_us))

    def no_farther(self, device: DeviceRow, round_trip_us: int) -> None:
        """A process there that may have been busy has answered in so long."""
        self.distances.at_most(device.id, device.incarnation, float(round_trip_us))

    async def _connect(
        self, want: Want, device: DeviceRow, grant: LeaseGrant, make: Callable[[Post], AnyProtocol]
    ) -> AnyProtocol:
        if grant.device_incarnation != device.incarnation:
            raise LeaseLost("the device was replaced meanwhile")
        directory = self._directory
        sock = await connect_socket(Address.of(device), self._secret, here=directory.here, tcp=directory.tcp)
        try:
            attached = await ask_host(sock, Kind.ATTACH, encode(self._words(want, grant)))
            directory.expect_exit(device, attached.worker_id)
            sharing = sock.family == socket.AF_UNIX
            link = make(Post(device, grant, attached.worker_id, attached.pid, attached.shared_dir, sharing))
            await asyncio.get_running_loop().create_connection(lambda: link, sock=sock)
        except OSError as error:
            sock.close()
            raise ConnectionLost(f"connection lost: {error}") from error
        except BaseException:
            sock.close()
            raise
        return link

    def _words(self, want: Want, grant: LeaseGrant) -> Attach:
        return Attach(
            holder=self._leases.holder,
            slot=grant.slot,
            epoch=grant.epoch,
            incarnation=grant.device_incarnation,
            tenant_id=want.tenant_id,
            version_id=want.version_id or 0,
            memory_bytes=want.memory_bytes,
            network=want.network,
            role=want.role,
            session_bytes=want.session_bytes,
        )
