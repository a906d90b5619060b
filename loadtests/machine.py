"""The machine under the benchmark: what it is, how busy it is, how much memory a process has.

Reads /proc only.  Figures taken on a busy machine are worthless, so a run waits for quiet, and tells how
quiet it was.
"""

from __future__ import annotations

import mmap
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("aiohttp", "asyncpg", "uvloop", "msgspec", "ray", "torch", "mosec")
QUIET_SHARE = 0.10
_LOOK_SECONDS = 2.0
PATIENCE_SECONDS = 60.0


def describe() -> dict[str, Any]:
    """What a reader needs to judge the figures."""
    return {
        "kernel": platform.release(),
        "cpu": f"{os.cpu_count()} x {_cpu_model()}",
        "python": platform.python_version(),
        "versions": ", ".join(f"{name} {_version(name)}" for name in _PACKAGES),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "-"


# --- how busy ---------------------------------------------------------------------------------
def busy_share(seconds: float) -> float:
    """The share of all processors that was in use over so many seconds from now."""
    before_busy, before_all = _ticks()
    time.sleep(seconds)
    busy, total = _ticks()
    return (busy - before_busy) / max(1, total - before_all)


def _ticks() -> tuple[int, int]:
    numbers = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = numbers[3] + numbers[4]
    return sum(numbers) - idle, sum(numbers)


def wait_for_quiet(say: Callable[[str], None], patience: float = PATIENCE_SECONDS) -> float:
    """Wait until nothing else runs, within reason; the share that was busy at the last look."""
    deadline = time.monotonic() + patience
    told = False
    while (share := busy_share(_LOOK_SECONDS)) > QUIET_SHARE and time.monotonic() < deadline:
        if not told:
            say(f"the machine is {share:.0%} busy; waiting up to {patience:g} s for quiet")
            told = True
    if share > QUIET_SHARE:
        say(f"the machine stays {share:.0%} busy: these figures are not to be trusted")
    return share


def settle(limit: float = QUIET_SHARE, patience: float = 3.0, look: float = 0.2) -> float:
    """Between two rounds: let what the last one has left run out; the share busy at the last look."""
    deadline = time.monotonic() + patience
    while (share := busy_share(look)) > limit and time.monotonic() < deadline:
        pass
    return share


# --- memory -----------------------------------------------------------------------------------
def have_free_memory(most_bytes: int) -> None:
    """Take memory and free it: the host of a virtual machine takes back what is free, and is slow to give it again.

    Whoever comes next pays for that, a second and more for each GB; who it is would be chance.
    """
    size = min(most_bytes, _available_bytes() // 4) // mmap.PAGESIZE * mmap.PAGESIZE
    if size:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def memory(pid: int) -> dict[str, int]:
    """Resident bytes of a process: all, and the part that is shared memory."""
    found = {"total": 0, "shared": 0}
    names = {"VmRSS": "total", "RssShmem": "shared"}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in names:
            found[names[name]] = int(rest.split()[0]) * 1024
    return found


@dataclass(slots=True)
class MemoryWatch:
    """Resident bytes over some time: at its begin, at its end, at most."""

    before: int
    peak: int = 0
    after: int = 0
    samples: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    @property
    def growth(self) -> int:
        return max(0, self.peak - self.before)


@contextmanager
def watch_memory(pid: int, interval: float = 0.02) -> Iterator[MemoryWatch]:
    """Looks many times a second: a peak shorter than that is missed, which is said in the result."""
    watch = MemoryWatch(memory(pid)["total"])
    thread = threading.Thread(target=_look, args=(watch, pid, interval), daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        watch._stop.set()
        thread.join()
        watch.after = memory(pid)["total"]
        watch.peak = max(watch.peak, watch.after)


def _look(watch: MemoryWatch, pid: int, interval: float) -> None:
    while not watch._stop.wait(interval):
        watch.peak = max(watch.peak, memory(pid)["total"])
        watch.samples += 1
