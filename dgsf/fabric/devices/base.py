"""The small interface behind which every kind of device fits.

A `Device` is what its server holds: it tells of memory and health and says what a worker needs.  The other
half, `setup_worker`, runs inside each worker after the fork; the server's process never opens a context
on a device.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Protocol

from dgsf.core.devices import DeviceSpec

THREADS_OPTION = "threads"


class Device(Protocol):
    """One device as its server sees it."""

    @property
    def spec(self) -> DeviceSpec: ...

    def memory_used(self, workers_bytes: int) -> int:
        """Bytes in use now; `workers_bytes` is what our workers hold in main memory."""
        ...

    def worker_environment(self) -> dict[str, str]:
        """Variables that the workers' process needs from its start."""
        ...

    def device_nodes(self) -> tuple[str, ...]:
        """Files in /dev that the workers must see."""
        ...

    def check_health(self) -> str:
        """Empty, or what is wrong with it."""
        ...

    def scrub(self) -> None:
        """Called when a worker is gone: nothing that it left may be found by the next one."""
        ...


def machine_memory() -> int:
    """Main memory in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def machine_cpus() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def use_threads(options: dict[str, Any]) -> None:
    """How many threads torch may use in this worker; importing torch is left to who wants it."""
    torch = sys.modules.get("torch")
    if torch is not None and options.get(THREADS_OPTION):
        torch.set_num_threads(int(options[THREADS_OPTION]))
