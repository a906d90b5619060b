"""Cuts a byte stream into frames without copying or reading the bodies that only pass through.

Frames of a kind that is relayed come out as the very slices that arrived, many in one piece where they lie side
by side; a frame is handed on only when it is whole, so that whatever follows it is in step.  Unlawful frames raise
ProtocolError as in dgsf.wire.frames.
"""

from __future__ import annotations

from typing import NamedTuple

from dgsf.errors import ProtocolError
from dgsf.wire.frames import HEADER, HEADER_BYTES, MAX_BODY_BYTES, Kind

PASSED = frozenset({int(Kind.COMMAND), int(Kind.ANSWER)})
_KINDS = frozenset(int(kind) for kind in Kind)
Piece = bytes | memoryview


class Cut(NamedTuple):
    """One frame, or several of a relayed kind; `flags` and `stream` are the last one's."""

    kind: int
    flags: int
    stream: int
    size: int  # headers included
    pieces: list[Piece]

    def body(self) -> bytes:
        """Of a single frame."""
        return b"".join(self.pieces)[HEADER_BYTES:]


class Cutter:
    """Keeps the unfinished rest of one direction of one connection; at most a frame's length."""

    __slots__ = ("_have", "_head", "_pieces", "_want")

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._have = 0
        self._want = HEADER_BYTES
        self._head = (0, 0, 0)

    @property
    def unfinished(self) -> bool:
        return self._have > 0

    def feed(self, data: bytes) -> list[Cut]:
        view = memoryview(data)
        cuts: list[Cut] = []
        position, end = self._finish(view, cuts) if self._have else 0, len(data)
        while end - position >= HEADER_BYTES:
            length, kind, flags, stream = _read_head(data, position)
            following = position + HEADER_BYTES + length
            if following > end:
                break
            self._add(cuts, kind, flags, stream, view, position, following)
            position = following
        if position < end:
            self._keep(view[position:])
        return cuts

    @staticmethod
    def _add(cuts: list[Cut], kind: int, flags: int, stream: int, view: memoryview, start: int, end: int) -> None:
        last = cuts[-1] if cuts else None
        if last is not None and last.kind == kind and kind in PASSED:
            size = last.size + end - start
            pieces = last.pieces
            if isinstance(pieces[-1], memoryview) and pieces[-1].obj is view.obj:  # they lie side by side
                pieces = [*pieces[:-1], view[start - len(pieces[-1]) : end]]
            else:
                pieces = [*pieces, view[start:end]]
            cuts[-1] = Cut(kind, flags, stream, size, pieces)
        else:
            cuts.append(Cut(kind, flags, stream, end - start, [view[start:end]]))

    def _finish(self, view: memoryview, cuts: list[Cut]) -> int:
        """Finish the frame that was begun, if enough has come; where the next one starts."""
        position = 0
        if self._have < HEADER_BYTES:
            position = self._take(view, 0, HEADER_BYTES - self._have)
            if self._have < HEADER_BYTES:
                return position
            self._pieces = [b"".join(self._pieces)]
            self._learn(self._pieces[0])
        position = self._take(view, position, self._want - self._have)
        if self._have == self._want:
            cuts.append(Cut(*self._head, self._have, self._pieces))
            self._pieces, self._have, self._want = [], 0, HEADER_BYTES
        return position

    def _take(self, view: memoryview, position: int, count: int) -> int:
        piece = view[position : position + count]
        if len(piece):
            self._pieces.append(piece)
            self._have += len(piece)
        return position + len(piece)

    def _keep(self, rest: memoryview) -> None:
        self._pieces, self._have = [rest], len(rest)
        if self._have >= HEADER_BYTES:
            self._learn(rest)

    def _learn(self, head: Piece) -> None:
        length, kind, flags, stream = _read_head(head, 0)
        self._head = (kind, flags, stream)
        self._want = HEADER_BYTES + length


def _read_head(data: Piece, position: int) -> tuple[int, int, int, int]:
    length, kind, flags, reserved, stream = HEADER.unpack_from(data, position)
    if length > MAX_BODY_BYTES:
        raise ProtocolError(f"frame of {length} bytes is over the limit of {MAX_BODY_BYTES}")
    if reserved or kind not in _KINDS:
        raise ProtocolError(f"not a frame: kind {kind}, reserved {reserved}")
    return length, kind, flags, stream
