"""Large payloads over a connection, piece by piece and never more than the receiver asked for.

The receiver starts with a window of credit and gives more as it puts pieces away; a sender out of credit
waits.  On an event loop what arrives goes straight into a file in shared memory, so that no process holds a
large payload in its own memory.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

from dgsf.errors import ProtocolError
from dgsf.wire.blocking import WINDOW_BYTES
from dgsf.wire.frames import CHUNK_BYTES, FLAG_MORE, Kind
from dgsf.wire.link import Link
from dgsf.wire.messages import Credit, encode, reader
from dgsf.wire.ports import Payload
from dgsf.wire.shared import SharedArea, discard

read_credit = reader(Credit)


class CreditGate:
    """The sender's side of a stream's credit."""

    __slots__ = ("_left", "_waiter")

    def __init__(self) -> None:
        self._left = WINDOW_BYTES
        self._waiter: asyncio.Future[None] | None = None

    def give(self, size: int) -> None:
        self._left += size
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self, size: int) -> None:
        while self._left < size:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._left -= size


async def send_chunks(link: Link, stream: int, payload: Payload, gate: CreditGate) -> None:
    """All of a payload as ITEM frames of one stream."""
    for piece in _pieces(payload):
        await gate.take(len(piece))
        if link.lost:
            return
        link.send(Kind.ITEM, stream, piece, FLAG_MORE)


def _pieces(payload: Payload) -> Iterator[bytes]:
    if not payload.path:
        for start in range(0, len(payload.data), CHUNK_BYTES):
            yield payload.data[start : start + CHUNK_BYTES]
        return
    descriptor = payload.open()
    try:
        while piece := os.read(descriptor, CHUNK_BYTES):
            yield piece
    finally:
        os.close(descriptor)


class ChunkFile:
    """The receiver's side: pieces of one payload into one file."""

    def __init__(self, area: SharedArea, limit: int) -> None:
        self._descriptor, self._path = area.new_file()
        self._limit = limit
        self._size = 0

    def write(self, link: Link, stream: int, piece: bytes) -> None:
        """Put a piece away and give credit for the next; OSError if there is no room for it."""
        if self._size + len(piece) > self._limit:
            raise ProtocolError(f"a payload over the limit of {self._limit} bytes")
        written = os.write(self._descriptor, piece)
        while written < len(piece):  # a file system that is nearly full takes a part, and refuses the next
            written += os.write(self._descriptor, memoryview(piece)[written:])
        self._size += len(piece)
        link.send(Kind.CREDIT, stream, encode(Credit(len(piece))))

    @property
    def size(self) -> int:
        return self._size

    def payload(self, codec: int, size: int) -> Payload:
        """What has arrived, if it is all of it."""
        os.close(self._descriptor)
        if size != self._size:
            discard(self._path)
            raise ProtocolError(f"a payload of {self._size} bytes that should have {size}")
        return Payload(codec, b"", self._path, size)

    def drop(self) -> None:
        os.close(self._descriptor)
        discard(self._path)
