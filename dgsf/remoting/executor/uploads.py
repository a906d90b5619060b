"""Bytes that come in: small tensors inside a record, large ones in bulk frames straight into their memory.

A transfer is opened by its record, before its bytes arrive, and is closed by whoever uses them.  Bulk frames
of a transfer that nobody opened, or more bytes than it has, break the protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dgsf.errors import ProtocolError
from dgsf.remoting.executor.codes import count_of, dtype_of, sizes_of
from dgsf.remoting.executor.limits import refuse_over
from dgsf.wire.frames import MAX_BODY_BYTES

Memory = tuple[torch.Tensor, memoryview]


def raw_memory(size: int) -> Memory:
    """Fresh bytes as a tensor, and the same as memory that a socket can fill."""
    raw = torch.empty(size, dtype=torch.uint8)
    return raw, memoryview(raw.numpy())


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """The memory of a contiguous CPU tensor."""
    if not tensor.numel():
        return memoryview(b"")
    flat = tensor.as_strided((tensor.numel(),), (1,))  # a contiguous one may have odd strides where its size is 1
    return memoryview(flat.view(torch.uint8).numpy())


def shaped(raw: torch.Tensor, dtype: torch.dtype, sizes: list[int]) -> torch.Tensor:
    return raw.view(dtype).view(sizes)


def checked(code: Any, sizes: Any, size: Any) -> tuple[torch.dtype, list[int]]:
    """Type and sizes of a tensor that comes in `size` bytes; ProtocolError if they do not fit."""
    dtype, sizes = dtype_of(code), sizes_of(sizes)
    if type(size) is not int or size != count_of(sizes) * dtype.itemsize:
        raise ProtocolError(f"{size!r} bytes are not a tensor of {dtype} and sizes {sizes}")
    return dtype, sizes


def small(code: Any, sizes: Any, data: Any) -> torch.Tensor:
    """The tensor of an UPLOAD record."""
    if not isinstance(data, bytes):
        raise ProtocolError("an upload without bytes")
    dtype, sizes = checked(code, sizes, len(data))
    if not data:
        return torch.empty(sizes, dtype=dtype)
    # A copy in memory of torch's own: what lies in a buffer of Python's cannot be resized.
    return torch.frombuffer(bytearray(data), dtype=dtype).view(sizes).clone()


class Transfer:
    """Memory that is being filled by bulk frames; `unwanted`: the bytes must come, but are thrown away.

    `through`: they come through this buffer, as unwanted ones do, from which `landed` has to take what has `passed`.
    """

    __slots__ = ("_memory", "_passing", "_size", "_taken", "filled", "finished", "held_bytes", "raw", "unwanted")

    def __init__(self, size: int, through: Memory | None = None, unwanted: bool = False) -> None:
        self._passing = through is not None
        self.raw, self._memory = raw_memory(size) if through is None else through
        self.held_bytes = 0 if self._passing else size
        self._size = size
        self.filled = 0
        self._taken = 0  # bytes of the frame that is being received
        self.unwanted = unwanted
        self.finished: Callable[[], None] | None = None  # called once the bytes are there

    @property
    def complete(self) -> bool:
        return self.filled == self._size

    def take(self, size: int) -> memoryview:
        start, self.filled, self._taken = self.filled, self.filled + size, size
        if self.filled > self._size:
            raise ProtocolError(f"a transfer of {self._size} bytes got {self.filled}")
        return self._memory[:size] if self._passing else self._memory[start : self.filled]

    def passed(self) -> memoryview:
        """What is in the buffer, once."""
        data, self._taken = self._memory[: self._taken], 0
        return data

    def landed(self) -> None:
        """What was taken last is there."""


class Transfers:
    """The open transfers of a session."""

    def __init__(self, limit: int) -> None:
        self.bytes = 0  # of memory, in all open ones
        self._limit = limit
        self._open: dict[int, Transfer] = {}
        self._passage: Memory | None = None

    @property
    def passage(self) -> Memory:
        """Where bytes pass through that do not stay, or not there; one for all, as frames come one after the other."""
        if self._passage is None:
            self._passage = raw_memory(MAX_BODY_BYTES)
        return self._passage

    def __contains__(self, number: int) -> bool:
        return number in self._open

    def __len__(self) -> int:
        return len(self._open)

    def open(
        self, number: Any, size: Any, unwanted: bool = False, make: Callable[[int], Transfer] | None = None
    ) -> Transfer:
        if type(number) is not int or type(size) is not int or size < 0 or number in self._open:
            raise ProtocolError(f"a transfer {number!r} of {size!r} bytes cannot be opened")
        refuse_over(len(self._open) + 1, self._limit, "open transfers")
        transfer = make(size) if make is not None else Transfer(size, self.passage if unwanted else None, unwanted)
        self._open[number] = transfer
        self.bytes += transfer.held_bytes
        return transfer

    def get(self, number: int) -> Transfer:
        return self._open[number]

    def close(self, number: int) -> Transfer:
        transfer = self._open.pop(number)
        self.bytes -= transfer.held_bytes
        return transfer

    def sink(self, number: int, size: int) -> memoryview:
        """Where the next bytes of this transfer go."""
        transfer = self._open.get(number)
        if transfer is None:
            raise ProtocolError(f"bulk bytes for transfer {number}, which nobody opened")
        return transfer.take(size)

    def arrived(self, number: int) -> None:
        """The bytes that `sink` was asked for are there."""
        transfer = self._open[number]
        transfer.landed()
        if transfer.complete and transfer.finished is not None:
            transfer.finished()
            self.close(number)
