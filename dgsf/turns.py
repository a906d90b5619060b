"""How long the kernel lets a process run before it looks for others that wait.

A process that is woken often and works for a few microseconds each time, as the proxy does, is put on a processor
sooner if it asks for short turns: its turn would end earlier, so it goes first.  It gets no larger share of the
processor.  Kernels before 6.12 take the request and do nothing.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

SHORT_SECONDS = 100e-6  # the shortest that the kernel allows
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
# size, policy, flags, nice, priority, runtime (of ordinary processes: the turn), deadline, period
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")


def ask_for_short_turns(seconds: float = SHORT_SECONDS) -> bool:
    """For the calling thread and those that it starts; False if the kernel will not."""
    number = _SCHED_SETATTR.get(platform.machine())
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    wanted = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, os.nice(0), 0, int(seconds * 1e9), 0, 0)
    return bool(ctypes.CDLL(None).syscall(number, 0, wanted, 0) == 0)
