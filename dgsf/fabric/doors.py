"""The doors of a device server: a Unix socket and a TCP port, with the handshake in front.

Nothing that arrives here is trusted before the handshake is over.  Each connection is handled apart, so
that a broken one only closes itself; handshakes have a deadline, and when too many are under way the
oldest gives way.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable

from dgsf.errors import ConnectionLost, DgsfError
from dgsf.wire.frames import Frame
from dgsf.wire.handshake import read_frame, shake_as_server

log = logging.getLogger(__name__)
MAX_HANDSHAKES = 128
HANDSHAKE_SECONDS = 5.0
_BACKLOG = 512

Visitor = Callable[[socket.socket, Frame], Awaitable[None]]


class Doors:
    """Accepts, authenticates, reads the first frame, and hands the raw socket to `visitor`."""

    def __init__(self, secret: bytes, visitor: Visitor) -> None:
        self._secret = secret
        self._visitor = visitor
        self._listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._shaking: dict[asyncio.Task[None], socket.socket] = {}  # in order of arrival
        self._leaving: dict[asyncio.Task[None], socket.socket] = {}
        self._unix_path = ""

    def open(self, unix_path: str, tcp_host: str) -> int:
        """Listen on both; returns the TCP port."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(unix_path)
        self._listen(socket.AF_UNIX, unix_path)
        self._unix_path = unix_path
        os.chmod(unix_path, 0o600)
        return int(self._listen(socket.AF_INET, (tcp_host, 0)).getsockname()[1])

    def _listen(self, family: socket.AddressFamily, address: str | tuple[str, int]) -> socket.socket:
        listener = socket.socket(family, socket.SOCK_STREAM)
        self._listeners.append(listener)
        listener.setblocking(False)
        listener.bind(address)
        listener.listen(_BACKLOG)
        self._keep(asyncio.create_task(self._accept(listener)))
        return listener

    async def close(self) -> None:
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listener in self._listeners:
            listener.close()
        if self._unix_path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._unix_path)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(listener)
            except OSError as error:  # out of descriptors: those we have will end
                log.error("accept_failed", extra={"error": str(error)})
                await asyncio.sleep(0.1)
                continue
            self._make_room()
            task = asyncio.create_task(self._welcome(sock))
            self._shaking[task] = sock
            self._keep(task)

    def _make_room(self) -> None:
        if len(self._shaking) >= MAX_HANDSHAKES:
            oldest = next(iter(self._shaking))
            self._leaving[oldest] = self._shaking.pop(oldest)
            oldest.cancel()

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        sock = self._shaking.pop(task, None) or self._leaving.pop(task, None)
        if sock is not None:  # it never came through the door, perhaps never even began
            sock.close()
        if not task.cancelled() and task.exception() is not None:
            log.error("visitor_failed", exc_info=task.exception())

    async def _welcome(self, sock: socket.socket) -> None:
        try:
            frame = await self._shake(sock)
        except (DgsfError, OSError) as error:
            level = logging.DEBUG if isinstance(error, ConnectionLost) else logging.WARNING
            log.log(level, "visitor_refused", extra={"error": str(error)})
            return
        current = asyncio.current_task()
        assert current is not None
        self._shaking.pop(current, None)
        await self._visitor(sock, frame)

    async def _shake(self, sock: socket.socket) -> Frame:
        sock.setblocking(False)
        if sock.family == socket.AF_INET:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await shake_as_server(sock, self._secret, HANDSHAKE_SECONDS)
        return await read_frame(sock, HANDSHAKE_SECONDS)
