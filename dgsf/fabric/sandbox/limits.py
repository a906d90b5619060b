"""Resource limits of a worker: memory, files, processes; and first in line when the machine runs out.

Memory is what the worker may map beyond what the fork brought along (shared with the zygote and paid
for by no one): asking for more raises MemoryError in the function instead of ending the process.  What the platform
itself keeps there for a function's remote device comes on top: the soft limit is that much higher for as long, up to
the hard one.
"""

from __future__ import annotations

import contextlib
import os
import resource

MAX_PROCESSES = 512
MAX_DESCRIPTORS = 4096
_PAGE = resource.getpagesize()


def apply_limits(max_data_bytes: int, max_file_bytes: int, beside_bytes: int = 0) -> None:
    """Soft and hard limits, so that nothing can raise them again, but for `beside_bytes` of the platform's own."""
    _set(resource.RLIMIT_CORE, 0)
    _set(resource.RLIMIT_NOFILE, MAX_DESCRIPTORS)
    _set(resource.RLIMIT_FSIZE, max_file_bytes)
    _set(resource.RLIMIT_NPROC, MAX_PROCESSES)
    _set(resource.RLIMIT_MEMLOCK, 8 * 1024 * 1024)
    _set(resource.RLIMIT_DATA, max_data_bytes, beside_bytes)
    os.umask(0o077)


def _set(which: int, value: int, more: int = 0) -> None:
    """The soft limit, and a hard one that is so much higher."""
    hard = resource.getrlimit(which)[1]
    most = value + more if hard == resource.RLIM_INFINITY else min(value + more, hard)
    resource.setrlimit(which, (min(value, most), most))


class Allowance:
    """What the soft limit on data may rise by, for memory that is not the function's."""

    def __init__(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        self.most = hard - soft if resource.RLIM_INFINITY not in (soft, hard) else 0

    def change(self, change: int) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if resource.RLIM_INFINITY not in (soft, hard):
            resource.setrlimit(resource.RLIMIT_DATA, (max(0, min(hard, soft + change)), hard))


def raised_by(pid: int, allowance: int) -> int:
    """By how much the soft limit of a process is higher now than it was at first."""
    try:
        with open(f"/proc/{pid}/limits") as file:
            line = next(line for line in file if line.startswith("Max data size"))
        soft, hard = (int(text) for text in line.split()[3:5])
    except (OSError, StopIteration, ValueError):  # gone, or without a limit
        return 0
    return max(0, min(allowance, soft - (hard - allowance)))


def data_bytes() -> int:
    """What counts against RLIMIT_DATA now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[5]) * _PAGE


def be_first_to_go() -> None:
    """The kernel's out-of-memory killer takes a worker before anything of the platform."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
