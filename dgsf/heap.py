"""Freed memory stays with the process for its next use.

The C library gives larger blocks back to the system as soon as they are free; to get them again costs a page
fault for every 4 KiB, more than it takes to copy them.  Processes that move or compute megabytes all the time
keep a bounded amount instead.  Where the C library cannot be asked, nothing changes.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_KEPT = 32 * 1024 * 1024  # glibc's own limit; larger blocks are always given back


def keep_freed_memory(limit_bytes: int) -> bool:
    """Keep up to so many free bytes at the end of the heap; False if this C library has no such setting."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, min(_LARGEST_KEPT, limit_bytes)) and mallopt(_M_TRIM_THRESHOLD, limit_bytes))
