"""Freed memory stays with the process for its next use.

The C library gives larger blocks back to the system as soon as they are free; to get them again costs a page
fault for every 4 KiB, more than it takes to copy them.  Processes that move or compute megabytes all the time
keep a bounded amount instead, in pages of 2 MiB where the kernel has them: fewer faults, and fewer misses of
the translation buffer in every kernel that runs over it.  Where the C library cannot be asked, nothing changes.
"""

from __future__ import annotations

import ctypes

HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}  # in the environment that a process starts with
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_ONCE = 32 * 1024 * 1024  # older C libraries refuse to take larger blocks than this from the heap
_APART_BYTES = 1024 * 1024
_libc = ctypes.CDLL(None)


class _Usage(ctypes.Structure):
    """What mallinfo2 tells."""

    _fields_ = (("others", ctypes.c_size_t * 8), ("free_bytes", ctypes.c_size_t), ("end_bytes", ctypes.c_size_t))


def keep_freed_memory(limit_bytes: int) -> bool:
    """Keep up to so many free bytes at the end of the heap; False if this C library has no such setting."""
    mallopt = getattr(_libc, "mallopt", None)
    if mallopt is None:
        return False
    from_heap = mallopt(_M_MMAP_THRESHOLD, limit_bytes) or mallopt(_M_MMAP_THRESHOLD, _LARGEST_ONCE)
    return bool(from_heap and mallopt(_M_TRIM_THRESHOLD, limit_bytes))


def free_between() -> int:
    """Free bytes between blocks in use, which the heap cannot give back by becoming shorter; 0: not known."""
    ask = getattr(_libc, "mallinfo2", None)
    if ask is None:
        return 0
    ask.restype = _Usage
    usage = ask()
    return int(usage.free_bytes - usage.end_bytes)


def give_freed_memory_back() -> None:
    """Give back all pages that are free, and take larger blocks each for itself from now on: they leave no holes."""
    mallopt, trim = getattr(_libc, "mallopt", None), getattr(_libc, "malloc_trim", None)
    if mallopt is None or trim is None:
        return
    mallopt(_M_MMAP_THRESHOLD, _APART_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _APART_BYTES)
    trim(ctypes.c_size_t(0))


class KeptHeap:
    """Freed memory is kept until there is too much of it between blocks in use; from then on it is given back."""

    def __init__(self, most_between: int) -> None:
        self._most = most_between
        self._keeps = True

    def look(self) -> None:
        if self._keeps and free_between() > self._most:
            self._keeps = False
            give_freed_memory_back()
