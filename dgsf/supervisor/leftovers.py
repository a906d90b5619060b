"""Processes of this platform, found by the mark in their environment, and the end of those left over.

Every process of a platform carries DGSF_MARK; whatever has it and belongs to us is ours, however it came
to be an orphan.  Ray's processes write their title over their environment; those are known by the title
and by the files of our run dir that they hold open.  A process is named by pid and start time and ended
through a pidfd, so that a pid that was given to another process in the meantime is never hit.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from dgsf.errors import StartError
from dgsf.paths import run_dir_of, write_private

_END_SECONDS = 30.0  # a killed process gives its memory back first
_RAY_TITLE = b"ray::"


@dataclass(frozen=True, slots=True)
class Identity:
    """One process, for good: pids are used again, a pid with its start time is not."""

    pid: int
    started: int  # clock ticks since boot
    name: str = ""


def identity(pid: int) -> Identity | None:
    """The process that has this pid now; None if it is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return None if fields[0] in "ZX" else Identity(pid, int(fields[19]), name)


def marked(mark: str) -> list[Identity]:
    """All processes of this user that carry the mark, but not this one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        with contextlib.suppress(OSError):  # gone meanwhile, or not for us to read
            if process.stat().st_uid == os.geteuid() and _is_marked(process, mark):
                found.append(identity(int(process.name)))
    return [item for item in found if item is not None]


def _is_marked(process: Path, mark: str) -> bool:
    if f"DGSF_MARK={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
        return True
    if not (process / "cmdline").read_bytes().startswith(_RAY_TITLE):
        return False
    folder = f"{run_dir_of(mark)}/"
    return any(os.readlink(process / "fd" / name).startswith(folder) for name in os.listdir(process / "fd"))


def recorded(path: Path) -> list[Identity]:
    """Those that an earlier run wrote down and that still live."""
    try:
        items = [Identity(**item) for item in json.loads(path.read_text())]
    except (OSError, ValueError, TypeError):
        return []
    return [item for item in items if _lives(item)]


def record(path: Path, pids: dict[str, int]) -> None:
    """Write down what runs."""
    found = [(name, identity(pid)) for name, pid in pids.items()]
    rows = [asdict(Identity(item.pid, item.started, name)) for name, item in found if item is not None]
    write_private(path, json.dumps(rows, indent=1))


def end(processes: Iterable[Identity], timeout: float = _END_SECONDS) -> list[Identity]:
    """Kill them and wait for it; returns those that would not go."""
    left = {item.pid: item for item in processes}
    for item in left.values():
        _kill(item)
    deadline = time.monotonic() + timeout
    while left and time.monotonic() < deadline:
        left = {pid: item for pid, item in left.items() if _lives(item)}
        if left:
            time.sleep(0.01)
    return list(left.values())


def end_marked(mark: str) -> int:
    """End all that carry the mark, also what they start meanwhile; tells how many there were."""
    count = 0
    for _ in range(20):
        found = marked(mark)
        if not found:
            return count
        count += len(found)
        stubborn = end(found)
        if stubborn:
            one = stubborn[0]
            raise StartError(f"process {one.pid} ({one.name}) of an earlier run does not end; end it by hand")
    raise StartError("processes of an earlier run keep starting new ones; is another 'dgsf up' being started?")


def lock(path: Path) -> IO[str]:
    """Hold the data dir for this process alone."""
    file = open(path, "a+")  # noqa: SIM115 - held until the process ends
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise StartError(
            f"another platform runs on {path.parent} (process {holder}); stop it, or choose another --data-dir",
            pid=holder,
        ) from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def _lives(item: Identity) -> bool:
    now = identity(item.pid)
    return now is not None and now.started == item.started


def _kill(item: Identity) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.pidfd_open(item.pid)
        try:
            if _lives(item):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)
