"""A whole session as bytes, for a live move: tensors, kinds, traces, counters, random numbers, sequence number.

The pieces are STATE frames between two executors; nobody between them reads them.  The receiver checks them as it
checks a guest's words.  After a move the next snapshot is a full one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from dgsf.errors import DgsfError, ProtocolError
from dgsf.remoting.executor import uploads
from dgsf.remoting.executor.snapshot import cut_up
from dgsf.remoting.protocol import BULK_BYTES

if TYPE_CHECKING:
    from dgsf.remoting.executor.machine import Machine

_HEAD = struct.Struct("<QQ")  # bytes of the head, of all
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def leaving(machine: Machine, next_frame: int) -> Iterator[memoryview]:
    """The state in pieces, each small enough for a frame."""
    machine.snapshots.courier.wait()
    machine.changes.contents.clear()  # the new device need not have them: all bytes travel
    picture = machine.snapshots.picture(incremental=False)
    head = _encode({
        "next_frame": next_frame,
        "calls": machine.calls,
        "snapshot": machine.snapshots.number,
        "kinds": {number: kind.definition for number, kind in machine.kinds.items()},
        "traces": machine.traces.templates(),
        "storages": picture.storages,
        "rest": machine.snapshots.rest(picture),
        "untold_call": machine.handles.untold.call if machine.handles.untold is not None else 0,
    })  # fmt: skip
    yield memoryview(_HEAD.pack(len(head), len(head) + picture.bytes()))
    for data in (memoryview(head), *(uploads.bytes_of(piece) for piece in picture.pieces)):
        for start in range(0, len(data), BULK_BYTES):
            yield data[start : start + BULK_BYTES]


class Arriving:
    """Puts the pieces together and becomes that session."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._head_bytes = 0
        self._raw: torch.Tensor | None = None
        self._memory = memoryview(b"")
        self._filled = 0

    def take(self, piece: memoryview) -> None:
        if self._raw is None:
            self._begin(piece)
            return
        end = self._filled + len(piece)
        if end > len(self._memory):
            raise ProtocolError("a moving session has more bytes than it said")
        self._memory[self._filled : end] = piece
        self._filled = end

    def _begin(self, piece: memoryview) -> None:
        if len(piece) != _HEAD.size:
            raise ProtocolError("a moving session begins with its size")
        self._head_bytes, size = _HEAD.unpack(piece)
        self._machine.memory.reserve(size - self._head_bytes)
        self._raw, self._memory = uploads.raw_memory(size)

    def become(self) -> int:
        """All is there; the number of the next command frame."""
        if self._raw is None or self._filled != len(self._memory):
            raise ProtocolError("a moving session stopped in the middle")
        try:
            return self._load(_decode(self._memory[: self._head_bytes]), self._raw[self._head_bytes :])
        except DgsfError:
            raise
        except Exception as error:
            raise ProtocolError(f"a moving session cannot be read: {error}"[:300]) from error

    def _load(self, head: dict[str, Any], raw: torch.Tensor) -> int:
        machine = self._machine
        for number, definition in head["kinds"].items():
            machine.define(number, *definition)
        for number, template in head["traces"].items():
            machine.traces.define(number, template)
        machine.snapshots.load(head["storages"], head["rest"], cut_up(head["storages"], raw), head["untold_call"])
        machine.calls = head["calls"]
        machine.snapshots.number = head["snapshot"]
        return int(head["next_frame"])
