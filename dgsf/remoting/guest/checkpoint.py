"""The guest's copy of the device's state, joined from snapshots.

A snapshot brings the bytes of those storages that changed; others stay as they are, or are contents that the
guest has anyway, by their hash.  What else is in a snapshot is the executor's own and kept unread.  With it
go the kinds and traces that were defined by then, and the number of calls that it covers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dgsf.errors import ProtocolError
from dgsf.remoting.guest.channel import Buffer

Source = memoryview | bytes  # the bytes themselves, or their digest (of type bytes)


class _Head(msgspec.Struct, array_like=True):
    number: int
    storages: list[tuple[int, int, bool | bytes | None]]
    rest: msgspec.Raw


_decode = msgspec.msgpack.Decoder(_Head).decode
_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A state to start from."""

    number: int = 0
    storages: dict[int, tuple[int, Source]] = field(default_factory=dict)
    rest: bytes = b""
    definitions: list[list[Any]] = field(default_factory=list)
    calls: int = 0

    @property
    def digests(self) -> set[bytes]:
        return {source for _, source in self.storages.values() if isinstance(source, bytes)}

    def restore(self) -> tuple[bytes, int, list[Buffer]]:
        """The head, all bytes, and the pieces to send: the head and the storages."""
        storages: list[tuple[int, int, bool | bytes | None]] = [
            (number, size, source if isinstance(source, bytes) else True)
            for number, (size, source) in self.storages.items()
        ]
        head = _encode(_Head(self.number, storages, msgspec.Raw(self.rest)))
        pieces: list[Buffer] = [head, *(s for _, s in self.storages.values() if isinstance(s, memoryview))]
        return head, sum(map(len, pieces)), pieces


NOTHING = Checkpoint()


Place = Callable[[int], memoryview]


def _plain(size: int) -> memoryview:
    return memoryview(bytearray(size))


def absorb(
    before: Checkpoint, content: Any, bulk: memoryview, definitions: list[Any], calls: int, place: Place = _plain
) -> Checkpoint:
    """The new state: what a snapshot brought, over what was there."""
    try:
        head_bytes = int(content[0])
        head = _decode(bulk[:head_bytes])
    except (msgspec.DecodeError, msgspec.ValidationError, TypeError, ValueError, IndexError) as error:
        raise ProtocolError(f"not a valid snapshot: {error}") from error
    storages: dict[int, tuple[int, Source]] = {}
    position = head_bytes
    for number, size, source in head.storages:
        if source is True:
            storages[number] = (size, bulk[position : position + size])
            position += size
        elif isinstance(source, bytes):
            storages[number] = (size, source)
        elif number in before.storages:
            storages[number] = before.storages[number]
        else:
            raise ProtocolError(f"a snapshot leaves out storage {number}, which was never brought")
    if position != len(bulk):
        raise ProtocolError(f"a snapshot of {len(bulk)} bytes describes {position}")
    return Checkpoint(head.number, _compact(storages, place), bytes(head.rest), definitions, calls)


def _compact(storages: dict[int, tuple[int, Source]], place: Place) -> dict[int, tuple[int, Source]]:
    """Storages that are the last few of a large old buffer get memory of their own."""
    used: dict[int, int] = {}
    for size, source in storages.values():
        if isinstance(source, memoryview):
            used[id(source.obj)] = used.get(id(source.obj), 0) + size
    return {number: (size, _moved(source, used, place)) for number, (size, source) in storages.items()}


def _moved(source: Source, used: dict[int, int], place: Place) -> Source:
    if isinstance(source, bytes) or used[id(source.obj)] * 2 >= memoryview(source.obj).nbytes:
        return source
    moved = place(len(source))
    moved[:] = source
    return moved
