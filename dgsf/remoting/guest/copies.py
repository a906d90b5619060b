"""Memory for bytes that are kept for a while, used again as soon as nobody reads it any more.

A program that sends a batch in every step, or whose state is saved every second, would otherwise ask the system for new
memory each time, and wait longer for that than for the bytes themselves.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence

import torch

from dgsf.remoting.guest.room import NoRoom, Room

KEPT_BYTES = 256 * 1024 * 1024  # as much as a journal may hold
_holders = torch._C._storage_Use_Count


class Copies:
    """Buffers by their size, at most so many bytes of them; beyond that memory comes from the system."""

    def __init__(self, limit: int = KEPT_BYTES, room: Room | None = None) -> None:
        self._limit = limit
        self._room = room or Room()
        self._bytes = 0
        self._buffers: dict[int, list[torch.Tensor]] = {}
        self._lock = threading.Lock()  # until a buffer has its reader, it must not be found again

    def of(self, tensor: torch.Tensor, size: int) -> memoryview:
        """The bytes of a contiguous CPU tensor, as they are now; NoRoom if there is no memory for them."""
        buffer, view = self._place(size)
        ctypes.memmove(buffer.data_ptr(), tensor.data_ptr(), size)
        return view

    def place(self, size: int) -> memoryview:
        """Memory for so many bytes, with whatever was there before; NoRoom if there is none."""
        return self._place(size)[1]

    def has_place(self, size: int) -> bool:
        """Whether there is memory for so much, as far as can be told without using it."""
        try:
            self.place(size)
        except NoRoom:
            return False
        return True

    def _place(self, size: int) -> tuple[torch.Tensor, memoryview]:
        with self._lock:
            buffer = self._unread(size)
            if buffer is None:
                buffer = self._new(size)
            # of another tensor, so that its readers can be counted
            return buffer, memoryview(buffer.detach().numpy())[:size]

    def release(self, but: Sequence[int], most: int) -> None:
        """Gives back what nobody reads, but a buffer of each of these sizes, as far as `most` bytes go."""
        with self._lock:
            spare: list[tuple[int, torch.Tensor]] = []
            for size in dict.fromkeys(but):
                buffer = self._unread(size) if size <= most else None
                if buffer is not None:
                    spare.append((size, buffer))
                    most -= size
            self._forget_unread()
            for size, buffer in spare:
                self._keep(size, buffer)

    def _unread(self, size: int) -> torch.Tensor | None:
        return next((each for each in self._buffers.get(size, ()) if not _is_read(each)), None)

    def _keep(self, size: int, buffer: torch.Tensor) -> None:
        self._buffers.setdefault(size, []).append(buffer)
        self._bytes += size

    def _new(self, size: int) -> torch.Tensor:
        try:
            buffer = self._room.new(size)
        except NoRoom:
            self._forget_unread()
            buffer = self._room.new(size)
        if self._bytes + size > self._limit:
            self._forget_unread()
        if self._bytes + size <= self._limit:
            self._keep(size, buffer)
        return buffer

    def _forget_unread(self) -> None:
        read = {size: [each for each in kept if _is_read(each)] for size, kept in self._buffers.items()}
        self._buffers = {size: kept for size, kept in read.items() if kept}
        self._bytes = sum(size * len(kept) for size, kept in self._buffers.items())


def _count(tensor: torch.Tensor) -> int:
    count: int = _holders(tensor.untyped_storage()._cdata)
    return count


_UNREAD = _count(torch.empty(1))


def _is_read(buffer: torch.Tensor) -> bool:
    return _count(buffer) > _UNREAD
