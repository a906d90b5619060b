"""The launch queue of a simulated GPU: launching costs the host its time, kernels follow each other behind it.

The device's clock is virtual, the waiting is real: whoever synchronises waits until the last kernel would be done.
"""

from __future__ import annotations

import time

_SPIN_NS = 150_000  # sleep overshoots by about as much


class LaunchQueue:
    """Kernels of one stream, in order."""

    __slots__ = ("_free_at", "launch_ns", "used_ns")

    def __init__(self, launch_us: float) -> None:
        self.launch_ns = int(launch_us * 1000)
        self.used_ns = 0  # time of all kernels so far
        self._free_at = 0

    def launch(self, since_ns: int, launches: int, kernel_ns: int) -> None:
        """Kernels whose launching began then: returns when the host would have its thread back."""
        until = since_ns + self.launch_ns * launches
        begin = self._free_at if self._free_at > since_ns else since_ns
        self._free_at = begin + kernel_ns
        self.used_ns += kernel_ns
        while time.perf_counter_ns() < until:
            pass

    def finish(self) -> None:
        """Wait until all kernels are done."""
        rest = self._free_at - time.perf_counter_ns()
        if rest > _SPIN_NS:
            time.sleep((rest - _SPIN_NS) / 1e9)
        while time.perf_counter_ns() < self._free_at:
            pass
