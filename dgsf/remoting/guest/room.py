"""Host memory for what lets a session outlive its device: journal, copies of uploads, checkpoints.

None of it is the program's.  Where the process may use only so much memory (a fabric function, or a program under a
limit of its own), it is counted, bounded, and in a function's worker added to the limit for as long as it is held, so
that the program keeps all that it asked for.  Where there is no room the answer is NoRoom, and survival gives way; it
never brings the machine to where the kernel ends a process.
"""

from __future__ import annotations

import mmap
import resource
import threading
import weakref
from collections.abc import Callable

import torch

from dgsf.heap import free_between, give_freed_memory_back
from dgsf.spare_memory import leaves_enough

_PAGE = mmap.PAGESIZE
_ASK_FROM = 16 * 1024**2  # bytes; less is not worth a look at the machine
_LIMITED_SHARE = (3, 8)  # of what a limited process may still map when it attaches
_LOOK_BYTES = 8 * 1024**2  # so often the heap is looked at,
_HOLES_BYTES = 16 * 1024**2  # for as much that is free there and of no use to a larger block
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class NoRoom(Exception):
    """There is no memory for it, or none that may be used."""


class Room:
    """Of a process without a limit: as much as the machine can spare."""

    most: int | None = None

    def new(self, size: int) -> torch.Tensor:
        """Memory of so many bytes, or NoRoom."""
        if size >= _ASK_FROM and not leaves_enough(size):
            raise NoRoom(f"this machine is short of memory: {size >> 20} MiB more would not leave enough of it")
        try:
            return torch.empty(size, dtype=torch.uint8)  # in torch's memory: numpy's has slow huge pages
        except (RuntimeError, MemoryError):
            raise NoRoom(f"this process cannot have {size >> 20} MiB more memory") from None

    def hold(self, size: int) -> bool:
        """Memory that was the program's is kept from now on; whether that counts."""
        return False

    def let_go(self, size: int) -> None:
        pass


class CountedRoom(Room):
    """Of a process with a limit: at most so many bytes; `cover` is told of each change."""

    def __init__(self, most: int, cover: Callable[[int], None] = lambda change: None) -> None:
        self.most: int = most
        self.held = 0
        self._cover = cover
        self._unlooked = 0  # bytes since the heap was looked at
        self._in_lots = True  # the heap's way with larger blocks
        self._lock = threading.RLock()  # what is collected while we hold it may be ours

    def new(self, size: int) -> torch.Tensor:
        size = max(_PAGE, -(-size // _PAGE) * _PAGE)
        if size >= _ASK_FROM and not leaves_enough(size):
            raise NoRoom(f"this machine is short of memory: {size >> 20} MiB more would not leave enough of it")
        if not self.hold(size):
            raise NoRoom(f"{size >> 20} MiB more would be over {self.most >> 20} MiB, which is all there may be of it")
        try:
            mapped = mmap.mmap(-1, size, flags=_PRIVATE)  # apart from the heap: given back to the last page
        except (OSError, MemoryError):
            self.let_go(size)
            raise NoRoom(f"this process cannot have {size >> 20} MiB more memory") from None
        weakref.finalize(mapped, self.let_go, size).atexit = False
        self._look_at_heap(size)
        return torch.frombuffer(mapped, dtype=torch.uint8)

    def _look_at_heap(self, size: int) -> None:
        """The program's batches, with our small records in between, leave holes there that no batch fits in again.

        They count against the program's limit.  So when there are many they are made up for, and no more are made.
        """
        self._unlooked += size
        if self._in_lots and self._unlooked >= _LOOK_BYTES:
            self._unlooked = 0
            if free_between() >= _HOLES_BYTES:
                self._in_lots = False
                give_freed_memory_back()
                self.hold(free_between())

    def hold(self, size: int) -> bool:
        with self._lock:
            if self.held + size > self.most:
                return False
            self.held += size
            self._cover(size)
            return True

    def let_go(self, size: int) -> None:
        with self._lock:
            self.held -= size
            self._cover(-size)


def room_of_process() -> Room:
    """A share of what the process's own limits leave it, if it has any."""
    left = _left()
    return Room() if left is None else CountedRoom(share_of(left))


def share_of(left: int) -> int:
    part, whole = _LIMITED_SHARE
    return max(0, left) * part // whole


def _left() -> int | None:
    """What this process may still map; None: as much as it likes."""
    with open("/proc/self/statm") as file:
        sizes = [int(text) * _PAGE for text in file.read().split()]
    used = {resource.RLIMIT_AS: sizes[0], resource.RLIMIT_DATA: sizes[5]}
    limits = {which: resource.getrlimit(which)[0] for which in used}
    left = (limit - used[which] for which, limit in limits.items() if limit != resource.RLIM_INFINITY)
    return min(left, default=None)
