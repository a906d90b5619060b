"""What memory this machine can spare for things that are good to have and can be done without.

A twentieth of it always stays free, so that nothing of the kind brings the kernel to end a process.  Where the machine
does not say what it has, nothing is refused.
"""

from __future__ import annotations

import contextlib

_SPARE_SHARE = 20  # of the machine's memory, one part stays free


def leaves_enough(size: int = 0) -> bool:
    """Whether so much more can be spared now."""
    return is_enough(size, *_machine())


def is_enough(size: int, available: int | None, total: int) -> bool:
    """Whether a machine with so much available of so much in all can spare it; where it does not say, it is tried."""
    return available is None or available - size >= total // _SPARE_SHARE


def _machine() -> tuple[int | None, int]:
    """Memory that is available, and all there is."""
    facts: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/meminfo") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name in ("MemTotal", "MemAvailable"):
                facts[name] = int(value.split()[0]) * 1024
            if len(facts) == 2:
                break
    return facts.get("MemAvailable"), facts.get("MemTotal", 0)
