"""Frames: the unit of every socket in the platform.

A frame is a 12-byte header (body length, kind, flags, a reserved zero, stream number) and a body.
Streams are calls; stream 0 is the connection itself.  `FrameReader` cuts a byte stream into frames
with hard limits and never looks inside a body.  Anything that does not fit raises ProtocolError, after
which the connection must be closed: there is no way back into step.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from dgsf.errors import ProtocolError

HEADER = struct.Struct("<IBBHI")
HEADER_BYTES = HEADER.size
MAX_BODY_BYTES = 2 * 1024 * 1024
CHUNK_BYTES = 256 * 1024


class Kind(IntEnum):
    """What a frame is for; the first seven make up a call's stream."""

    OPEN = 1  # begin a call: head and payload
    ITEM = 2  # a piece of payload or one item of a generator
    LOG = 3  # a line that the function printed
    PROGRESS = 4  # how far it is
    CREDIT = 5  # the receiver can take so many more bytes on this stream
    CANCEL = 6  # stop this call; with FLAG_GIVEN_UP because the platform stops
    END = 7  # the call's one and only end
    LOAD = 8  # to a worker: the function's code
    LOADED = 9  # from a worker: ready, or why not
    PING = 10
    PONG = 11
    ATTACH = 12  # to a device server: hand this connection to a worker
    ATTACHED = 13
    REQUEST = 14  # control: a request and its one reply
    REPLY = 15
    NOTICE = 16  # control: something happened
    COMMAND = 17  # of a session, guest to executor: device commands; `stream` is their sequence number
    ANSWER = 18  # of a session, executor to guest; `stream` is the command frame that it answers
    SESSION = 19  # between guest and proxy: begin, began, lost, end (dgsf.wire.session)
    USAGE = 20  # executor to proxy: device time and memory so far; never relayed
    STATE = 21  # of a moving session: a piece of its state, from the old executor to the new one
    JOIN = 22  # to a function host: hand this connection to a worker that runs already, for its session


FLAG_MORE = 1  # on ITEM, STATE and COMMAND: another piece of the same payload follows
FLAG_BULK = 2  # on COMMAND and ANSWER: the body is raw bytes behind a number, not records
FLAG_GIVEN_UP = 1  # on CANCEL
_KINDS = frozenset(int(kind) for kind in Kind)


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    body: bytes


def encode_frame(kind: int, stream: int, body: bytes = b"", flags: int = 0) -> bytes:
    """The bytes of a frame; ProtocolError for a body that the other side would have to refuse."""
    if len(body) > MAX_BODY_BYTES:
        raise ProtocolError(f"frame of {len(body)} bytes is over the limit of {MAX_BODY_BYTES}")
    return HEADER.pack(len(body), kind, flags, 0, stream) + body


class FrameReader:
    """Cuts what arrives into frames; keeps the unfinished rest."""

    __slots__ = ("_limit", "_rest")

    def __init__(self, limit: int = MAX_BODY_BYTES) -> None:
        self._limit = limit
        self._rest = b""

    @property
    def unfinished(self) -> bool:
        """Whether the stream stops in the middle of a frame."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[Frame]:
        if self._rest:
            data = self._rest + data
        frames: list[Frame] = []
        position, end = 0, len(data)
        while end - position >= HEADER_BYTES:
            length, kind, flags, reserved, stream = HEADER.unpack_from(data, position)
            if length > self._limit:
                raise ProtocolError(f"frame of {length} bytes is over the limit of {self._limit}")
            if reserved or kind not in _KINDS:
                raise ProtocolError(f"not a frame: kind {kind}, reserved {reserved}")
            start = position + HEADER_BYTES
            if end - start < length:
                break
            position = start + length
            frames.append(Frame(kind, flags, stream, bytes(data[start:position])))
        self._rest = data[position:] if position < end else b""
        return frames
