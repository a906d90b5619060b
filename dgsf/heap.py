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


def keep_freed_memory(limit_bytes: int) -> bool:
    """Keep up to so many free bytes at the end of the heap; False if this C library has no such setting."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    from_heap = mallopt(_M_MMAP_THRESHOLD, limit_bytes) or mallopt(_M_MMAP_THRESHOLD, _LARGEST_ONCE)
    return bool(from_heap and mallopt(_M_TRIM_THRESHOLD, limit_bytes))
