"""Freed memory stays with the process for its next use.

The C library gives larger blocks back to the system as soon as they are free; to get them again costs a page
fault for every 4 KiB, more than it takes to copy them.  Processes that move or compute megabytes all the time
keep a bounded amount instead.  Where the C library cannot be asked, nothing changes.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_LARGEST_ASKED = (
    32 * 1024 * 1024
)  # glibc's own limit; larger blocks are kept only if the end of the heap has room for them


def keep_freed_memory(limit_bytes: int, ahead_bytes: int = 0) -> bool:
    """Keep up to so many free bytes at the end of the heap; False if this C library has no such setting.

    `ahead_bytes`: the heap grows by so much more than is asked for, so that blocks over 32 MiB often find room there,
    too, instead of being mapped anew each time: a convolution's scratch memory of 57 MB costs a third of its time so.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = [(_M_MMAP_THRESHOLD, min(_LARGEST_ASKED, limit_bytes)), (_M_TRIM_THRESHOLD, limit_bytes)]
    if ahead_bytes:
        settings.append((_M_TOP_PAD, ahead_bytes))
    return all(mallopt(*each) for each in settings)
