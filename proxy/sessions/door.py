"""The door for guests: a Unix socket and a TCP port of the proxy, for programs that bring a ticket.

Nothing that arrives here is believed before the ticket's signature and the handshake with the session's own key
are checked; both have a deadline, and only so many may be under way at once.  A ticket opens one session.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from uuid import UUID

from dgsf.clock import Clock
from dgsf.errors import ConnectionLost, DgsfError, ProtocolError, SessionRefused
from dgsf.store.proxies import SessionDoor as DoorAddress
from dgsf.wire.alive import watch_peer
from dgsf.wire.frames import Kind, encode_frame
from dgsf.wire.handshake import read_exactly, shake_as_server
from dgsf.wire.listening import listen_on_both
from dgsf.wire.messages import Failure, encode
from dgsf.wire.session import Ended
from dgsf.wire.tickets import LENGTH, MAGIC, MAX_TICKET_BYTES, Claims, accept, session_key
from proxy.sessions.owner import SessionOwner, SessionPort

log = logging.getLogger(__name__)
KNOCK_SECONDS = 5.0
MAX_KNOCKING = 128


class SessionDoor:
    """Lets guests in."""

    def __init__(self, secret: bytes, clock: Clock, unix_path: Path) -> None:
        self._secret = secret
        self._clock = clock
        self._unix_path = unix_path
        self._sessions: SessionPort | None = None
        self._listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._knocking = 0
        self._used: dict[bytes, float] = {}  # sessions whose ticket was used, until it expires

    def listen(self, tcp_host: str, tcp_port: int) -> DoorAddress:
        """Open both; where they are."""
        self._listeners = listen_on_both(self._unix_path, tcp_host, tcp_port)
        return str(self._unix_path), tcp_host, int(self._listeners[1].getsockname()[1])

    def start(self, sessions: SessionPort) -> None:
        """Begin to answer."""
        self._sessions = sessions
        for listener in self._listeners:
            self._later(self._accept(listener))

    async def stop(self) -> None:
        for listener in self._listeners:
            listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(FileNotFoundError):
            self._unix_path.unlink()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(listener)
            except OSError as error:  # out of descriptors: those we have will end
                log.error("accept_failed", extra={"error": str(error)})
                await asyncio.sleep(0.1)
                continue
            sock.setblocking(False)
            if self._knocking >= MAX_KNOCKING:
                sock.close()
                continue
            self._later(self._welcome(sock))

    async def _welcome(self, sock: socket.socket) -> None:
        self._knocking += 1
        try:
            watch_peer(sock)
            claims = await self._check(sock)
        except (DgsfError, OSError, TimeoutError) as error:
            level = logging.DEBUG if isinstance(error, ConnectionLost) else logging.WARNING
            log.log(level, "guest_refused", extra={"error": str(error)})
            sock.close()
            return
        except BaseException:
            sock.close()
            raise
        finally:
            self._knocking -= 1
        await self._hand_over(sock, claims)

    async def _check(self, sock: socket.socket) -> Claims:
        """Ticket, then handshake: who cannot do both gets no word."""
        async with asyncio.timeout(KNOCK_SECONDS):
            opening = await read_exactly(sock, len(MAGIC) + LENGTH.size)
            if opening[: len(MAGIC)] != MAGIC:
                raise ProtocolError("the guest does not speak this protocol")
            (length,) = LENGTH.unpack(opening[len(MAGIC) :])
            if length > MAX_TICKET_BYTES:
                raise ProtocolError(f"a ticket of {length} bytes is over the limit of {MAX_TICKET_BYTES}")
            claims = accept(await read_exactly(sock, length), self._secret, self._clock.wall())
            await shake_as_server(sock, session_key(claims.session, self._secret), KNOCK_SECONDS)
        return claims

    async def _hand_over(self, sock: socket.socket, claims: Claims) -> None:
        assert self._sessions is not None
        owner = SessionOwner(
            claims.tenant_id,
            None,
            claims.gpu,
            claims.memory_bytes,
            UUID(bytes=claims.session),
            claims.start_seconds,
            resumes=UUID(bytes=claims.resumes) if claims.resumes else None,
        )
        try:
            self._use_up(claims)
            await self._sessions.adopt(sock, owner)
        except DgsfError as error:
            with contextlib.suppress(OSError):
                frame = encode_frame(Kind.SESSION, 0, encode(Ended(Failure.of(error))))
                await asyncio.get_running_loop().sock_sendall(sock, frame)
            sock.close()

    def _use_up(self, claims: Claims) -> None:
        now = self._clock.wall()
        self._used = {session: until for session, until in self._used.items() if until >= now}
        if claims.session in self._used:
            raise SessionRefused("this ticket was used already; ask for a new one")
        self._used[claims.session] = claims.expires

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
