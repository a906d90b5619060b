"""Keeps the processors of this machine from halting while something is measured.

A virtual machine's processor that halts is given back to its host, and waking it takes as long as the host likes.  A
process of the idle class on each one spins whenever nobody else wants it, and is interrupted at once by whoever does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

_SPIN = """
import os, sys
os.sched_setaffinity(0, [int(sys.argv[1])])
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
print(flush=True)
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(100_000):
        pass
"""


@contextmanager
def processors_awake() -> Iterator[None]:
    """For the time of this context, on every processor that this process may use."""
    with ExitStack() as stack:
        for number in os.sched_getaffinity(0):
            process = subprocess.Popen([sys.executable, "-c", _SPIN, str(number)], stdout=subprocess.PIPE)
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout is not None
            process.stdout.readline()
        yield
