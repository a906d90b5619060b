"""The proxy behind a socket: gateways connect, open calls on streams, and get their ends.

It adds nothing to proxy.local but the wire.  A gateway that is gone cancels its calls, unless they are
keyed: somebody may come back for those.
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

from dgsf.config import Settings
from dgsf.errors import (
    ConnectionLost,
    DgsfError,
    FunctionCancelled,
    PlatformError,
    ProtocolError,
    QueueFull,
    ResultTooLarge,
)
from dgsf.wire.frames import FLAG_GIVEN_UP, Kind
from dgsf.wire.handshake import shake_as_server
from dgsf.wire.listening import listen_on_both
from dgsf.wire.messages import Carrier, Failure, Invoke, InvokeEnd, Message, Ref, clip_failure, join, reader, split
from dgsf.wire.ports import CallPort, CallRequest, CallResult, CallStream, Payload
from dgsf.wire.shared import SharedArea
from dgsf.wire.streams import PayloadLink

log = logging.getLogger(__name__)
MAX_OPEN_CALLS = 20_000
MAX_SHAKING = 64
_read_invoke = reader(Invoke)


class GatewayLink(PayloadLink):
    """One gateway."""

    def __init__(self, port: CallPort, area: SharedArea, settings: Settings, sharing: bool) -> None:
        limit = max(settings.max_body_bytes, settings.max_result_bytes)
        super().__init__(area, settings.inline_bytes, limit, sharing)
        self._port = port
        self._open: dict[int, tuple[CallRequest, CallStream]] = {}
        self._arriving: dict[int, Invoke] = {}
        self._ignored: dict[int, int] = {}  # refused streams: how many bytes of them may still come

    def frame_received(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == Kind.OPEN:
            self._invoke(stream, body)
        elif kind == Kind.ITEM:
            self._piece(stream, body)
        elif kind == Kind.CREDIT:
            self.credit_received(stream, body)
        elif kind == Kind.CANCEL:
            self._cancel(stream, given_up=bool(flags & FLAG_GIVEN_UP))
        elif kind == Kind.PING:
            self.send(Kind.PONG, 0)
        else:
            raise ProtocolError(f"a gateway does not send frames of kind {kind}")

    def link_lost(self, error: DgsfError) -> None:
        super().link_lost(error)
        self._arriving.clear()
        self._ignored.clear()
        open_calls, self._open = self._open, {}
        for request, stream in open_calls.values():
            if not request.keep:
                stream.cancel()

    def _invoke(self, stream: int, body: bytes) -> None:
        if stream in self._open or stream in self._arriving or stream in self._ignored:
            raise ProtocolError("a stream that is open already")
        invoke, inline = split(body, _read_invoke)
        if len(self._open) + len(self._arriving) >= MAX_OPEN_CALLS:
            full = QueueFull(f"{MAX_OPEN_CALLS} calls of this gateway are open on this proxy already", retry_after=1)
            self._refuse(stream, invoke, full)
        elif invoke.payload.carrier == Carrier.chunks:
            self._arriving[stream] = invoke
        else:
            self._begin(stream, invoke, inline)

    def _piece(self, stream: int, body: bytes) -> None:
        if stream in self._ignored:
            self._ignore(stream, len(body))
            return
        invoke = self._arriving.get(stream)
        if invoke is None:
            raise ProtocolError("a piece of a payload that was not announced")
        try:
            arrived = self.chunk_received(stream, body)
        except OSError as error:
            self._refuse(stream, invoke, _without_payload(error))
            self._ignore(stream, len(body))
            return
        if arrived >= invoke.payload.size:
            del self._arriving[stream]
            self._begin(stream, invoke, b"")

    def _ignore(self, stream: int, size: int) -> None:
        left = self._ignored.pop(stream, 0) - size
        if left > 0:
            self._ignored[stream] = left

    def _cancel(self, stream: int, *, given_up: bool) -> None:
        """Stop a call, or stop waiting for the rest of its payload: after a CANCEL none of it comes."""
        if stream in self._open:
            request, call = self._open[stream]
            request.given_up = given_up
            call.cancel()
        elif stream in self._arriving:
            self._refuse(stream, self._arriving[stream], FunctionCancelled())
        self._ignored.pop(stream, None)

    def _refuse(self, stream: int, invoke: Invoke, error: DgsfError) -> None:
        """End a call that never began, and nothing else on this link."""
        self._arriving.pop(stream, None)
        if invoke.payload.carrier == Carrier.chunks:
            self._ignored[stream] = invoke.payload.size - self.drop_chunks(stream)
        state = "cancelled" if isinstance(error, FunctionCancelled) else "failed"
        self.send(Kind.END, stream, join(InvokeEnd(state, 0, 0, 0, "", Ref(), Failure.of(error))))

    def _begin(self, stream: int, invoke: Invoke, inline: bytes) -> None:
        payload = self.receive(stream, invoke.payload, inline)
        if payload.path and invoke.payload.carrier == Carrier.shared:
            try:
                payload = self._own(payload)
            except OSError as error:
                self._refuse(stream, invoke, _without_payload(error))
                return
        request = CallRequest(
            UUID(bytes=invoke.call),
            invoke.tenant_id,
            invoke.version_id,
            payload,
            invoke.reply,
            invoke.start_us,
            invoke.timeout_us,
            invoke.priority,
            invoke.attempt,
            invoke.keep,
        )
        call = self._port.open(request)
        self._open[stream] = (request, call)
        call.when_ended(lambda result: self._end(stream, result))

    def _own(self, payload: Payload) -> Payload:
        """A name of our own for the gateway's file: each side drops its own when it is done."""
        return Payload(payload.codec, b"", self._area.link(payload.path), payload.size)

    def _end(self, stream: int, result: CallResult) -> None:
        if self._open.pop(stream, None) is None or self.lost:
            if result.payload is not None:
                result.payload.discard()
            return
        ref = self.describe(result.payload)
        failure = None if result.failure is None else clip_failure(result.failure)
        head = InvokeEnd(result.state, result.queue_us, result.device_us, result.cost_nano, result.device, ref, failure)
        try:
            self.send_with(Kind.END, stream, head, ref, result.payload)
        except ProtocolError as error:
            if result.payload is not None:
                result.payload.discard()
            self.send_failed(stream, head, error)

    def send_failed(self, stream: int, head: Message, error: Exception) -> None:
        """An END that cannot be sent as it is: the gateway is told that, and what the call cost."""
        assert isinstance(head, InvokeEnd)
        log.error("end_not_sent", extra={"stream": stream, "error": str(error)})
        why = ResultTooLarge if isinstance(error, ProtocolError) else DgsfError
        failure = Failure.of(why(f"the call has run, but its result cannot be sent: {error}"[:500]))
        end = InvokeEnd("failed", head.queue_us, head.device_us, head.cost_nano, head.device, Ref(), failure)
        self.send(Kind.END, stream, join(end))


def _without_payload(error: OSError) -> DgsfError:
    """Why a call cannot begin: its payload has been dropped by whoever sent it, or finds no room here."""
    if isinstance(error, FileNotFoundError):
        return FunctionCancelled("the caller dropped the call's payload before the call began")
    return PlatformError(f"the call's payload cannot be kept now: {error.strerror}; try again", retry_after=1)


class ProxyServer:
    """Listens for gateways, on a Unix path and on TCP."""

    def __init__(self, settings: Settings, secret: bytes, area: SharedArea, unix_path: Path) -> None:
        self._port: CallPort | None = None
        self._settings = settings
        self._secret = secret
        self._area = area
        self._unix_path = unix_path
        self._listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._links: set[GatewayLink] = set()
        self._shaking = asyncio.Semaphore(MAX_SHAKING)

    def listen(self, tcp_host: str) -> int:
        """Open both doors; returns the TCP port."""
        self._listeners = listen_on_both(self._unix_path, tcp_host)
        return int(self._listeners[1].getsockname()[1])

    def start(self, port: CallPort) -> None:
        """Begin to answer, with this port behind the doors."""
        self._port = port
        for listener in self._listeners:
            self._later(self._accept(listener))

    async def stop(self) -> None:
        for listener in self._listeners:
            listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in list(self._links):
            link.close()
        with contextlib.suppress(FileNotFoundError):
            self._unix_path.unlink()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            sock, _ = await loop.sock_accept(listener)
            sock.setblocking(False)
            self._later(self._welcome(sock))

    async def _welcome(self, sock: socket.socket) -> None:
        try:
            async with self._shaking:
                await shake_as_server(sock, self._secret)
            await self._adopt(sock)
        except (ConnectionLost, ProtocolError) as error:
            log.warning("gateway_refused", extra={"error": str(error)})
            sock.close()
        except BaseException:
            sock.close()
            raise

    async def _adopt(self, sock: socket.socket) -> None:
        assert self._port is not None  # nobody is welcomed before start
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = GatewayLink(self._port, self._area, self._settings, sock.family == socket.AF_UNIX)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: link, sock)
        self._links = {known for known in self._links if not known.lost} | {link}

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
