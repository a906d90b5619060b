"""Frames over a blocking socket: the worker's end of its connection.

A worker runs one call at a time and needs no event loop; plain reads and writes cost it the least.
"""

from __future__ import annotations

import socket
from collections import deque

from dgsf.errors import ConnectionLost
from dgsf.wire.frames import CHUNK_BYTES, FLAG_MORE, Frame, FrameReader, Kind, encode_frame
from dgsf.wire.messages import Credit, encode, reader

WINDOW_BYTES = 4 * CHUNK_BYTES
_read_credit = reader(Credit)


class FrameSocket:
    """Reads and writes frames; blocks."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reader = FrameReader()
        self._ready: deque[Frame] = deque()

    def next(self) -> Frame:
        """The next frame in order; ConnectionLost at the end."""
        while not self._ready:
            self._ready.extend(self._receive())
        return self._ready.popleft()

    def send(self, kind: int, stream: int, body: bytes = b"", flags: int = 0) -> None:
        try:
            self._sock.sendall(encode_frame(kind, stream, body, flags))
        except OSError as error:
            raise ConnectionLost(f"connection lost: {error}") from error

    def receive_chunks(self, stream: int, size: int) -> bytes:
        """A payload in ITEM frames of one stream; frames of others wait their turn."""
        parts: list[bytes] = []
        missing = size
        while missing > 0:
            frame = self._next_of(stream, Kind.ITEM)
            parts.append(frame.body)
            missing -= len(frame.body)
            self.send(Kind.CREDIT, stream, encode(Credit(len(frame.body))))
        return b"".join(parts)

    def send_chunks(self, stream: int, data: bytes) -> None:
        """A payload in ITEM frames, never more than the receiver gave credit for."""
        window = WINDOW_BYTES
        for start in range(0, len(data), CHUNK_BYTES):
            piece = data[start : start + CHUNK_BYTES]
            while window < len(piece):
                window += _read_credit(self._next_of(stream, Kind.CREDIT).body).size
            window -= len(piece)
            self.send(Kind.ITEM, stream, piece, FLAG_MORE)

    def _next_of(self, stream: int, kind: int) -> Frame:
        for frame in self._ready:
            if frame.stream == stream and frame.kind == kind:
                self._ready.remove(frame)
                return frame
        while True:
            arrived = self._receive()
            self._ready.extend(arrived)
            for frame in arrived:
                if frame.stream == stream and frame.kind == kind:
                    self._ready.remove(frame)
                    return frame

    def _receive(self) -> list[Frame]:
        try:
            data = self._sock.recv(CHUNK_BYTES)
        except OSError as error:
            raise ConnectionLost(f"connection lost: {error}") from error
        if not data:
            raise ConnectionLost("connection closed by the other side")
        return self._reader.feed(data)
