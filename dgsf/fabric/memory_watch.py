"""How much memory a worker holds: its processes, its shared folder and its scratch space.

The kernel's limit on a process makes a function that asks for too much see MemoryError.  This watch is for
what that limit does not count: subprocesses, shared mappings and files in memory.  A cheap sum comes first;
only when it is too high are pages that several processes share counted once.
"""

from __future__ import annotations

import os
from pathlib import Path

from dgsf.fabric.sandbox.limits import raised_by
from dgsf.fabric.worker_table import WorkerRecord
from dgsf.spare_memory import leaves_enough

MAX_SHARED_FILES = 4096
_MAX_PROCESSES = 1024
_PAGE = os.sysconf("SC_PAGE_SIZE")


def over_limit(worker: WorkerRecord, baseline: int) -> bool:
    """Measure it, note it in the record, and tell whether it is too much."""
    files = folder_bytes(worker.folder) + _scratch_bytes(worker.child.host_pid)
    pids = process_tree(worker.child.host_pid)
    private = sum(_resident(pid) for pid in pids) - baseline
    if len(pids) > 1 and private + files > worker.spec.process_bytes:
        private = sum(_proportional(pid) for pid in pids) - baseline
    worker.memory_used = max(0, private) + files
    if worker.memory_used <= worker.spec.process_bytes:
        return False
    if not leaves_enough():  # what is kept beside is nobody's by right, and a function can pretend that it is ours
        return True
    ours = raised_by(worker.child.host_pid, worker.spec.beside_bytes)  # what the platform keeps in it now
    return worker.memory_used > worker.spec.process_bytes + ours


def process_tree(pid: int) -> list[int]:
    """A process and all its descendants; orphans of a pid namespace belong to its first process."""
    found = [pid]
    for each in found:
        if len(found) > _MAX_PROCESSES:
            break
        found += _children(each)
    return found


def _children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            found = [int(text) for text in file.read().split()]
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:  # gone meanwhile
        return []
    for thread in threads if len(threads) > 1 else ():
        if thread != str(pid):
            found += _children_of_thread(pid, thread)
    return found


def _children_of_thread(pid: int, thread: str) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{thread}/children") as file:
            return [int(text) for text in file.read().split()]
    except OSError:
        return []


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * _PAGE
    except OSError:
        return 0


def _proportional(pid: int) -> int:
    """Resident bytes, shared pages divided among those who share them."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            for line in file:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        return 0
    return 0


def folder_bytes(folder: Path) -> int:
    """Bytes in a worker's shared folder; too many files count as too many bytes."""
    total = 0
    try:
        with os.scandir(folder) as entries:
            for count, entry in enumerate(entries):
                if count >= MAX_SHARED_FILES:
                    return 1 << 62
                total += entry.stat(follow_symlinks=False).st_blocks * 512
    except OSError:
        return total
    return total


def _scratch_bytes(pid: int) -> int:
    """What the worker wrote into its /tmp and /dev/shm."""
    try:
        found = os.statvfs(f"/proc/{pid}/root/tmp")
    except OSError:
        return 0
    return (found.f_blocks - found.f_bfree) * found.f_frsize
