"""Cuts what arrives at the guest into frames, with as few copies as possible.

Small frames are cut out of one buffer.  The bytes of a bulk frame whose place is known (a fetched tensor, a
snapshot) go straight there; those that nobody has a place for are thrown away, without memory of their own.  Each
frame is handed over before the next is looked at, because an answer may tell where the bulk behind it belongs.
"""

from __future__ import annotations

from collections.abc import Callable

from dgsf.errors import ProtocolError
from dgsf.remoting.protocol import BULK_HEADER
from dgsf.wire.frames import FLAG_BULK, HEADER, HEADER_BYTES, MAX_BODY_BYTES, Frame, Kind

BUFFER_BYTES = 256 * 1024
_BULK_START = HEADER_BYTES + BULK_HEADER.size


class Sink:
    """A place of known size for the bulk bytes of one answer; forgotten once it is full."""

    __slots__ = ("filled", "on_full", "size", "view")

    def __init__(self, view: memoryview | None, on_full: Callable[[], None], size: int = 0) -> None:
        """Without a view, `size` bytes are thrown away."""
        self.view = view
        self.size = size if view is None else len(view)
        self.filled = 0
        self.on_full = on_full

    def take(self, size: int) -> memoryview | None:
        """The place of the next so many bytes."""
        start, self.filled = self.filled, self.filled + size
        if self.filled > self.size:
            raise ProtocolError(f"a transfer of {self.size} bytes got {self.filled}")
        return None if self.view is None else self.view[start : self.filled]


class Intake:
    """Bytes in by `space` and `filled`, frames out by `deliver`, bulk into `sinks`."""

    __slots__ = (
        "_body", "_body_filled", "_buffer", "_deliver", "_end", "_head", "_number", "_sink", "_start", "_waste",
        "sinks",
    )  # fmt: skip

    def __init__(self, deliver: Callable[[Frame], None]) -> None:
        self.sinks: dict[int, Sink] = {}
        self._deliver = deliver
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._start = self._end = 0
        self._body: memoryview | None = None  # of a frame that is being received straight into its place
        self._body_filled = 0
        self._head = (0, 0, 0)
        self._sink: Sink | None = None
        self._number = 0  # of the answer that the sink belongs to
        self._waste = 0  # bytes still to come that nobody wants

    def space(self) -> memoryview:
        """Where the next bytes belong."""
        if self._body is not None:
            return self._body[self._body_filled :]
        if self._waste:
            return self._buffer[: self._waste]
        return self._buffer[self._end :]

    def filled(self, count: int) -> None:
        """So many bytes were put into `space()`."""
        if self._waste:
            self._waste -= count
            if not self._waste:
                self._finish_body()
        elif self._body is None:
            self._end += count
        else:
            self._body_filled += count
            if self._body_filled == len(self._body):
                self._finish_body()
        if self._body is None:
            self._cut()

    def _cut(self) -> None:
        while self._body is None and not self._waste and self._end - self._start >= HEADER_BYTES:
            if not self._cut_one():
                break
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start > BUFFER_BYTES // 2:
            rest = bytes(self._buffer[self._start : self._end])
            self._buffer[: len(rest)] = rest
            self._start, self._end = 0, len(rest)

    def _cut_one(self) -> bool:
        """One frame, or the start of one that has a place of its own; False if more is needed first."""
        length, kind, flags, reserved, stream = HEADER.unpack_from(self._buffer, self._start)
        if length > MAX_BODY_BYTES or reserved:
            raise ProtocolError(f"not a frame: {length} bytes, kind {kind}, reserved {reserved}")
        if kind == Kind.ANSWER and flags & FLAG_BULK:
            return self._cut_bulk(length)
        body = self._start + HEADER_BYTES
        if self._end - body >= length:
            self._start = body + length
            self._deliver(Frame(kind, flags, stream, bytes(self._buffer[body : self._start])))
            return True
        if length > BUFFER_BYTES // 2 - HEADER_BYTES:
            self._begin_body(memoryview(bytearray(length)), body, None)
            self._head = (kind, flags, stream)
        return False

    def _cut_bulk(self, length: int) -> bool:
        if self._end - self._start < _BULK_START:
            return False
        (number,) = BULK_HEADER.unpack_from(self._buffer, self._start + HEADER_BYTES)
        size = length - BULK_HEADER.size
        sink = self.sinks.get(number)
        self._number = number
        place = sink.take(size) if sink is not None else None
        if place is None:
            self._throw_away(size, self._start + _BULK_START, sink)
            return True
        self._begin_body(place, self._start + _BULK_START, sink)
        if len(place) == self._body_filled:
            self._finish_body()
        return True

    def _throw_away(self, size: int, start: int, sink: Sink | None) -> None:
        """Nobody waits for these any more, or has memory for them; what has come of them is skipped, so is the rest."""
        ready = min(self._end - start, size)
        self._start, self._waste, self._sink, self._head = start + ready, size - ready, sink, (0, 0, 0)
        if not self._waste:
            self._finish_body()

    def _begin_body(self, place: memoryview, start: int, sink: Sink | None) -> None:
        ready = min(self._end - start, len(place))
        place[:ready] = self._buffer[start : start + ready]
        self._start = start + ready
        self._body, self._body_filled, self._sink, self._head = place, ready, sink, (0, 0, 0)

    def _finish_body(self) -> None:
        body, sink, self._body, self._sink = self._body, self._sink, None, None
        kind, flags, stream = self._head
        if sink is not None:
            if sink.filled == sink.size:
                self.sinks.pop(self._number, None)
                sink.on_full()
        elif kind and body is not None:
            self._deliver(Frame(kind, flags, stream, bytes(body)))
