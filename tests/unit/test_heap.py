"""A process that keeps freed memory gets it again without page faults."""

import subprocess
import sys

_PROGRAM = """
import ctypes, resource, sys
from dgsf.heap import keep_freed_memory
if sys.argv[1] == "keep" and not keep_freed_memory(256 << 20):
    print(-1)
    raise SystemExit
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
def use():
    for size in (57 << 20, 24 << 20, 8 << 20):
        block = ctypes.c_void_p(libc.malloc(size))
        ctypes.memset(block, 1, size)
        libc.free(block)
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how):
    done = subprocess.run([sys.executable, "-c", _PROGRAM, how], check=True, capture_output=True, text=True)
    return int(done.stdout)


def test_memory_that_was_freed_is_used_again():
    kept = faults("keep")
    assert kept < 100  # of 22,784 pages; or -1 where the C library has no such setting
