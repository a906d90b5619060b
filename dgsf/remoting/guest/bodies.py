"""Bodies of command frames: MessagePack arrays of records, cut to what a frame takes.

They can be put together without decoding them.  A body knows nothing of sessions; who sends it keeps it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dgsf.errors import UsageError
from dgsf.remoting.protocol import COMMAND_BYTES
from dgsf.wire.frames import MAX_BODY_BYTES

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[list[Any]]).decode
_QUESTION_BYTES = 4096  # left free for a question behind the records


def encode_records(records: list[Any]) -> bytes:
    return _encode(records)


def decode_records(body: bytes) -> list[list[Any]]:
    return _decode(body)


def join_bodies(bodies: list[bytes]) -> bytes:
    """One array of all the elements of these arrays."""
    if len(bodies) == 1:
        return bodies[0]
    count, parts = 0, []
    for body in bodies:
        size, start = _head(body)
        count += size
        parts.append(body[start:])
    return _array_head(count) + b"".join(parts)


def _array_head(count: int) -> bytes:
    if count < 16:
        return bytes((0x90 | count,))
    if count < 0x10000:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def _head(body: bytes) -> tuple[int, int]:
    """How many elements, and where they start."""
    first = body[0]
    if first == 0xDC:
        return int.from_bytes(body[1:3], "big"), 3
    if first == 0xDD:
        return int.from_bytes(body[1:5], "big"), 5
    return first & 0x0F, 1


def in_frames(records: list[Any]) -> list[bytes]:
    """One body, or more if it would be too long for a frame; a single record may take several frames."""
    body = encode_records(records)
    if len(body) <= MAX_BODY_BYTES - _QUESTION_BYTES:
        return [body]
    if len(records) == 1:
        if len(body) > COMMAND_BYTES:
            raise UsageError(f"a command of {len(body)} bytes is over the limit of {COMMAND_BYTES}; do it in parts")
        return [body]
    half = len(records) // 2
    return [*in_frames(records[:half]), *in_frames(records[half:])]


def with_question(bodies: list[bytes], record: list[Any]) -> list[bytes]:
    """The question rides in the last frame."""
    question = encode_records([record])
    if bodies and len(bodies[-1]) + len(question) < MAX_BODY_BYTES:
        return [*bodies[:-1], join_bodies([bodies[-1], question])]
    return [*bodies, question]
