"""Reads the head of a state that a guest brings: what its storages, tensors and unusable handles are.

MessagePack makes much of little: a byte can become an object of sixty.  So it is counted before it is read.  A session
has no more tensors than handles, and no storage without a tensor; what is none of a state's parts is not read at all.
"""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec

from dgsf.errors import ProtocolError
from dgsf.remoting.executor.handles import MAX_FAILURES
from dgsf.remoting.executor.limits import Limits, refuse_over


class _Outline(msgspec.Struct, array_like=True):
    number: int
    storages: msgspec.Raw
    rest: msgspec.Raw


class _RestOutline(msgspec.Struct):
    views: msgspec.Raw
    failures: msgspec.Raw
    contents: msgspec.Raw


class _Rest(TypedDict):
    views: list[tuple[int, int, int, list[int], list[int], int, int]]
    failures: list[tuple[int, int, int, str, str]]
    untold: tuple[int, str, str] | None
    contents: dict[int, bytes]
    rng: bytes
    next: int


_outline = msgspec.msgpack.Decoder(_Outline).decode
_rest_outline = msgspec.msgpack.Decoder(_RestOutline).decode
_storages = msgspec.msgpack.Decoder(list[tuple[int, int, bool | bytes]]).decode
_rest = msgspec.msgpack.Decoder(_Rest).decode


def read_head(data: memoryview, limits: Limits) -> list[Any]:
    """Its number, storages and rest; ProtocolError or SessionRefused if it is none, before memory is spent on it."""
    try:
        outline = _outline(data)
        _refuse_too_many(outline.storages, _rest_outline(outline.rest), limits)
        return [outline.number, _storages(outline.storages), _rest(outline.rest)]
    except (msgspec.DecodeError, RecursionError, TypeError, ValueError) as error:
        raise ProtocolError(f"not the head of a state: {error}"[:300]) from error


def _refuse_too_many(storages: msgspec.Raw, rest: _RestOutline, limits: Limits) -> None:
    views = _count(rest.views)
    refuse_over(views, limits.handles, "tensors of a state")
    refuse_over(_count(rest.failures), MAX_FAILURES, "failed calls of a state")
    if _count(storages) > views or _count(rest.contents) > views:
        raise ProtocolError("a state has more storages or contents than tensors")


def _count(packed: msgspec.Raw) -> int:
    """The elements of an array or a map, by its first bytes."""
    data = bytes(memoryview(packed)[:5])
    if data[0] & 0xE0 == 0x80:  # a small map or array
        return data[0] & 0x0F
    if data[0] in (0xDC, 0xDE):
        return int.from_bytes(data[1:3], "big")
    if data[0] in (0xDD, 0xDF):
        return int.from_bytes(data[1:5], "big")
    raise ProtocolError("a state is made of arrays and maps")
