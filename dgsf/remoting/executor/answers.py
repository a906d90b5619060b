"""What a session's executor says: answers with the usage before them, in one piece."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dgsf.remoting.executor.wires import Wires
from dgsf.remoting.protocol import BULK_BYTES, INLINE_BYTES, Status
from dgsf.wire.frames import Kind
from dgsf.wire.session import encode_usage

_encode = msgspec.msgpack.Encoder().encode
Reading = Callable[[], tuple[int, int, int, int]]  # what a usage tells


class Answers:
    """Says things about the command frame that is being done."""

    def __init__(self, wires: Wires, reading: Reading, tell_usage: bool = True) -> None:
        self._wires = wires
        self._reading = reading
        self._tell_usage = tell_usage
        self.frame = 0  # the number of the frame whose records are being done
        self.last = False  # whether it is all done but for the record that is being answered

    def answer(self, request: int, status: Status, content: Any) -> None:
        body = _encode([request, int(status), content])
        answer = (int(Kind.ANSWER), 0, self.frame, body)
        if self._tell_usage:
            self._wires.send(self._usage(), answer)
        else:
            self._wires.send(answer)

    def tensor(self, request: int, dtype: int, sizes: list[int], data: memoryview) -> None:
        """A tensor's bytes: inside the answer, or behind it."""
        if len(data) <= INLINE_BYTES:
            self.answer(request, Status.OK, [dtype, sizes, len(data), data])
            return
        self.answer(request, Status.OK, [dtype, sizes, len(data)])
        self.bulk(request, data)

    def bulk(self, request: int, data: memoryview, frame: int | None = None) -> None:
        self._wires.send_bulk(self.frame if frame is None else frame, request, data)

    def bulks(self, request: int, pieces: list[memoryview], frame: int | None = None) -> None:
        """Several pieces, one behind the other; small ones share a frame. `frame`: the one that asked, if not this."""
        waiting: list[memoryview] = []
        size = 0
        for piece in pieces:
            if waiting and size + len(piece) > BULK_BYTES:
                self.bulk(request, memoryview(b"".join(waiting)), frame)
                waiting, size = [], 0
            if len(piece) > BULK_BYTES:
                self.bulk(request, piece, frame)
            elif piece:
                waiting.append(piece)
                size += len(piece)
        if waiting:
            self.bulk(request, memoryview(b"".join(waiting)), frame)

    def usage(self) -> None:
        if self._tell_usage:
            self._wires.send(self._usage())

    def _usage(self) -> tuple[int, int, int, bytes]:
        done = self.frame if self.last else self.frame - 1
        return int(Kind.USAGE), 0, max(0, done), encode_usage(*self._reading())
