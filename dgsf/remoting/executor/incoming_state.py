"""A session's state on its way in: every storage gets memory of its own as its bytes arrive.

The bytes come one behind the other and cut anywhere, the head that describes them first.  They pass through the one
small buffer of the session, so that a state needs its own memory once, and is in place a moment after its last byte.
What the head says is the guest's word: `state_head.py` reads it, and it is checked against the bytes that were
announced and reserved.
"""

from __future__ import annotations

from typing import Any

import torch

from dgsf.errors import ProtocolError
from dgsf.remoting.executor.limits import Limits, refuse_over
from dgsf.remoting.executor.state_head import read_head
from dgsf.remoting.executor.uploads import Memory, Transfer, bytes_of, raw_memory

_USUAL = Limits()
_EMPTY = raw_memory(0)[0]  # stands for every storage without bytes


class StateTransfer(Transfer):
    """The transfer of a RESTORE; `head` and `pieces` are whole when it is complete."""

    __slots__ = ("_head_memory", "_landed", "_limits", "_place", "_places", "head", "pieces")

    def __init__(self, head_bytes: int, size: int, through: Memory, limits: Limits = _USUAL) -> None:
        if type(head_bytes) is not int or not 0 < head_bytes <= size:
            raise ProtocolError(f"a state of {size!r} bytes cannot have a head of {head_bytes!r}")
        refuse_over(head_bytes, limits.head_bytes, "bytes of a state's head")
        super().__init__(size, through)
        self._limits = limits
        self.held_bytes = size
        self.head: Any = None
        self.pieces: list[torch.Tensor] = []  # the storages whose bytes came, in their order
        self._head_memory = memoryview(bytearray(head_bytes))
        self._places = [self._head_memory]  # what is to be filled, in this order
        self._place = 0  # the first of them that is not full
        self._landed = 0  # bytes that it has

    def landed(self) -> None:
        rest = self.passed()
        while len(rest):
            if self._place == len(self._places):
                raise ProtocolError("a state has more bytes than its storages")
            rest = self._put(rest)

    def _put(self, data: memoryview) -> memoryview:
        """Fill the next place; what is left of the data."""
        place = self._places[self._place]
        count = min(len(place) - self._landed, len(data))
        place[self._landed : self._landed + count] = data[:count]
        self._landed += count
        if self._landed == len(place):
            self._place, self._landed = self._place + 1, 0
            if self.head is None:
                self._lay_out()
        return data[count:]

    def _lay_out(self) -> None:
        """The head is there: memory for what follows it."""
        self.head = read_head(self._head_memory, self._limits)
        sizes = [size for _, size, source in self.head[1] if source is True]
        if any(size < 0 for size in sizes):
            raise ProtocolError("a storage has a size")
        if sum(sizes) != self.held_bytes - len(self._head_memory):
            raise ProtocolError("a state has fewer or more bytes than its storages")
        self.pieces = [raw_memory(size)[0] if size else _EMPTY for size in sizes]
        self._places += [bytes_of(piece) for piece in self.pieces if piece.numel()]
