"""The executor's end of its socket: frames in with as few copies as possible, answers out in one system call.

Command bodies are cut out of one receive buffer.  Bulk frames are received straight into the memory that the
machine names for their transfer.  Sending blocks: proxy and guest always drain.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from typing import NamedTuple

from dgsf.errors import ConnectionLost, ProtocolError
from dgsf.remoting.protocol import BULK_BYTES, BULK_HEADER
from dgsf.wire.frames import FLAG_BULK, HEADER, HEADER_BYTES, MAX_BODY_BYTES, Kind

BUFFER_BYTES = 256 * 1024
IDLE_MICROSECONDS = 50_000
_TIMEVAL = struct.Struct("@ll")
_BULK_BYTES = BULK_HEADER.size
Sink = Callable[[int, int], memoryview]  # transfer, size -> where these bytes go


class Incoming(NamedTuple):
    """A frame; the body of a bulk frame is where it belongs already."""

    kind: int
    flags: int
    stream: int
    body: memoryview
    transfer: int


class Wires:
    """Blocking frames for one session."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._armed = False
        self._sending = threading.Lock()  # a snapshot is sent beside the answers
        self.idle: Callable[[], None] | None = None  # called once when nothing came for IDLE_SECONDS

    # --- in
    def next(self, sink: Sink) -> Incoming:
        """The next frame. Its body is valid until the next call."""
        if not self._armed and self.idle is not None:
            self._arm(IDLE_MICROSECONDS)
        self._have(HEADER_BYTES)
        length, kind, flags, reserved, stream = HEADER.unpack_from(self._buffer, self._start)
        if length > MAX_BODY_BYTES or reserved:
            raise ProtocolError(f"not a frame: {length} bytes, kind {kind}, reserved {reserved}")
        self._start += HEADER_BYTES
        if kind == Kind.COMMAND and flags & FLAG_BULK:
            return self._bulk(length, flags, stream, sink)
        return Incoming(kind, flags, stream, self._body(length), 0)

    def _body(self, length: int) -> memoryview:
        if length <= BUFFER_BYTES:
            self._have(length)
            body = self._view[self._start : self._start + length]
            self._start += length
            return body
        whole = memoryview(bytearray(length))
        self._into(whole)
        return whole

    def _bulk(self, length: int, flags: int, stream: int, sink: Sink) -> Incoming:
        if length <= _BULK_BYTES:
            raise ProtocolError("a bulk frame without bytes")
        self._have(_BULK_BYTES)
        (transfer,) = BULK_HEADER.unpack_from(self._buffer, self._start)
        self._start += _BULK_BYTES
        piece = sink(transfer, length - _BULK_BYTES)
        self._into(piece)
        return Incoming(Kind.COMMAND, flags, stream, piece, transfer)

    def _have(self, count: int) -> None:
        """At least so many bytes in the buffer."""
        if self._end - self._start >= count:
            return
        if BUFFER_BYTES - self._start < max(count, 4096):
            rest = bytes(self._view[self._start : self._end])
            self._view[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
        elif self._start == self._end:
            self._start = self._end = 0
        while self._end - self._start < count:
            self._end += self._receive(self._view[self._end :])

    def _into(self, target: memoryview) -> None:
        """Exactly this many bytes, first from the buffer, then straight from the socket."""
        ready = min(len(target), self._end - self._start)
        target[:ready] = self._view[self._start : self._start + ready]
        self._start += ready
        while ready < len(target):
            ready += self._receive(target[ready:])

    def _arm(self, microseconds: int) -> None:
        """Wake a receive that waits so long; 0: let it wait for ever."""
        self._armed = bool(microseconds)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL.pack(0, microseconds))

    def _receive(self, target: memoryview) -> int:
        try:
            count = self._sock.recv_into(target)
        except BlockingIOError:  # the time is up
            self._arm(0)
            if self.idle is not None:
                self.idle()
            return self._receive(target)
        except OSError as error:
            raise ConnectionLost(f"connection lost: {error}") from error
        if not count:
            raise ConnectionLost("connection closed by the other side")
        return count

    # --- out
    def send(self, *frames: tuple[int, int, int, bytes | memoryview]) -> None:
        """Frames of kind, flags, stream, body, in one system call if it takes them."""
        parts: list[bytes | memoryview] = []
        for kind, flags, stream, body in frames:
            parts.append(HEADER.pack(len(body), kind, flags, 0, stream))
            parts.append(body)
        self._send(parts)

    def send_bulk(self, stream: int, number: int, data: memoryview) -> None:
        """The bytes of an answer in bulk frames."""
        for start in range(0, len(data), BULK_BYTES):
            piece = data[start : start + BULK_BYTES]
            length = _BULK_BYTES + len(piece)
            head = HEADER.pack(length, Kind.ANSWER, FLAG_BULK, 0, stream) + BULK_HEADER.pack(number)
            self._send([head, piece])

    def _send(self, parts: list[bytes | memoryview]) -> None:
        try:
            with self._sending:
                sent = self._sock.sendmsg(parts)
                for part in parts:
                    if sent < len(part):
                        self._sock.sendall(memoryview(part)[sent:])
                    sent = max(0, sent - len(part))
        except OSError as error:
            raise ConnectionLost(f"connection lost: {error}") from error
