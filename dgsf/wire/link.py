"""A connection as an asyncio protocol: frames in, frames out, writes coalesced per turn of the loop.

`Link` is the base of every connection that lives on an event loop: gateway to proxy, proxy to worker,
anyone to a device server.  A subclass handles frames and the loss of the connection.  A frame that
breaks the protocol, or a handler that raises ProtocolError, closes the connection and tells the
subclass once.  A peer that does not read is closed when too much waits for it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

from dgsf.errors import ConnectionLost, DgsfError, ProtocolError
from dgsf.wire.frames import FrameReader, encode_frame
from dgsf.wire.handshake import shake_as_client

MAX_WAITING_BYTES = 64 * 1024 * 1024


class Link(asyncio.Protocol):
    """One framed connection; subclasses override `frame_received` and `link_lost`."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader()
        self._waiting: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._lost: DgsfError | None = None
        self._opened = asyncio.Event()

    # --- for subclasses
    def frame_received(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        raise NotImplementedError

    def link_lost(self, error: DgsfError) -> None:
        raise NotImplementedError

    # --- for users
    @property
    def lost(self) -> bool:
        return self._lost is not None

    def send(self, kind: int, stream: int, body: bytes = b"", flags: int = 0) -> None:
        """Queue a frame; it leaves at the end of this turn of the loop together with its neighbours."""
        if self._lost is not None:
            raise ConnectionLost(self._lost.message)
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(encode_frame(kind, stream, body, flags))

    def close(self, error: DgsfError | None = None) -> None:
        """Close now; `link_lost` is called once, from here or from the loop."""
        if self._transport is not None:
            self._flush()
            self._transport.abort() if error else self._transport.close()
        self._tell_lost(error or ConnectionLost("closed on this side"))

    # --- asyncio.Protocol
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own does not inherit from it
        self._transport.set_write_buffer_limits(high=MAX_WAITING_BYTES)
        self._opened.set()

    def data_received(self, data: bytes) -> None:
        try:
            for kind, flags, stream, body in self._reader.feed(data):
                self.frame_received(kind, flags, stream, body)
                if self._lost is not None:
                    return
        except ProtocolError as error:
            self.close(error)
        except OSError as error:  # no room for what came: only this connection can be given up
            self.close(ConnectionLost(f"what came cannot be put away: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        cut = " in the middle of a frame" if self._reader.unfinished else ""
        self._tell_lost(ConnectionLost(f"connection lost{cut}{f': {exc}' if exc else ''}"))

    def pause_writing(self) -> None:
        self.close(ConnectionLost(f"the other side does not read: over {MAX_WAITING_BYTES} bytes wait for it"))

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting and self._transport is not None and not self._transport.is_closing():
            self._transport.write(waiting[0] if len(waiting) == 1 else b"".join(waiting))

    def _tell_lost(self, error: DgsfError) -> None:
        if self._lost is None:
            self._lost = error
            self.link_lost(error)


class Addressed(Protocol):
    """A record that says where a part listens, as the store keeps it."""

    @property
    def host_id(self) -> str: ...
    @property
    def unix_path(self) -> str | None: ...
    @property
    def tcp_host(self) -> str | None: ...
    @property
    def tcp_port(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Address:
    """Where a part listens: a Unix path for the same host, host and port for others."""

    host_id: str
    unix_path: str
    tcp_host: str
    tcp_port: int

    @classmethod
    def of(cls, row: Addressed) -> Address:
        return cls(row.host_id, row.unix_path or "", row.tcp_host or "", row.tcp_port or 0)

    def is_near(self, here: str) -> bool:
        """Whether its Unix path can be reached from the host `here`."""
        return self.host_id == here and os.path.exists(self.unix_path)

    def text(self) -> str:
        return f"{self.tcp_host}:{self.tcp_port}" if self.tcp_port else self.unix_path


def host_id() -> str:
    """What tells one running host from another: the kernel's boot id."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


async def connect_socket(
    address: Address, secret: bytes, *, here: str, tcp: bool, timeout: float = 5.0
) -> socket.socket:
    """A raw, authenticated, non-blocking socket to a part of the platform."""
    near = not tcp and address.is_near(here)
    sock = socket.socket(socket.AF_UNIX if near else socket.AF_INET, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        if not near:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        target = address.unix_path if near else (address.tcp_host, address.tcp_port)
        async with asyncio.timeout(timeout):
            await asyncio.get_running_loop().sock_connect(sock, target)
        await shake_as_client(sock, secret, timeout)
    except (OSError, TimeoutError) as error:
        sock.close()
        raise ConnectionLost(f"cannot reach {address.text()}: {error or 'no answer'}") from error
    except BaseException:
        sock.close()
        raise
    return sock


AnyLink = TypeVar("AnyLink", bound=Link)


async def adopt(sock: socket.socket, link: AnyLink) -> AnyLink:
    """Let a link take over an authenticated socket."""
    await asyncio.get_running_loop().create_connection(lambda: link, sock=sock)
    return link
