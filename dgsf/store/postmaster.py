"""How Postgres programs are run, and how those of a killed run are found and ended.

A program gets its folders as open descriptors (`/proc/self/fd/N`), so an unprivileged account can work
in a folder below one that it cannot enter.  The launcher is this file run as a script: it drops
privileges, asks the kernel for a signal when the parent dies, and becomes the program.  A leftover is a
`postgres` process with the cluster's mark in its title: unlike a number in a pid file, that cannot have
passed to a stranger, and reading it needs no privilege.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the launcher runs without the package
    from dgsf.store.binaries import Account, Binaries

_PR_SET_PDEATHSIG = 1
_END_SECONDS = 10.0
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


# --- running


def launcher(arguments: Sequence[str], account: Account | None, signal_number: int) -> list[str]:
    """The command that becomes this program: as `account`, and signalled when we die."""
    uid, gid = (account.uid, account.gid) if account is not None else (-1, -1)
    numbers = [str(number) for number in (os.getpid(), int(signal_number), uid, gid)]
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), *numbers, *arguments]


def _become(parent: int, signal_number: int, uid: int, gid: int, arguments: Sequence[str]) -> None:
    if uid >= 0:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    # After the change of user, which would clear it.
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal_number) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        raise SystemExit("the parent died before the start")
    os.umask(0o077)
    os.execv(arguments[0], list(arguments))  # noqa: S606 - that is what a launcher does


@contextmanager
def open_folders(*folders: Path) -> Iterator[tuple[int, ...]]:
    """Descriptors of these folders, for a child that may not reach them by name."""
    with ExitStack() as opened:
        descriptors = []
        for folder in folders:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            opened.callback(os.close, descriptor)
            descriptors.append(descriptor)
        yield tuple(descriptors)


def init_cluster(binaries: Binaries, cluster: Path, password: str, *, user: str, timeout: float) -> None:
    """initdb with passwords for everybody; the files end up owned by the server's account."""
    from dgsf.errors import StartError
    from dgsf.store.binaries import named_account

    maker = named_account()
    if maker is not None:
        os.chown(cluster, maker.uid, maker.gid)
    with open_folders(cluster) as (cluster_fd,), _secret(password, maker) as secret_fd:
        arguments = [str(binaries.initdb), "-D", f"/proc/self/fd/{cluster_fd}", "-U", user]
        arguments += ["--pwfile", f"/proc/self/fd/{secret_fd}", "--auth=scram-sha-256", "--no-locale", "-E", "UTF8"]
        arguments.append("--no-sync")  # file by file, that takes seconds; below it is one call
        done = subprocess.run(
            launcher(arguments, maker, signal.SIGKILL),
            cwd="/",
            env=ENVIRONMENT,
            pass_fds=(cluster_fd, secret_fd),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    if done.returncode != 0:
        raise StartError(f"the embedded database could not be made in {cluster}: {done.stderr.strip()[-500:]}")
    if binaries.account is not None:
        _give(cluster, binaries.account)
    with open_folders(cluster) as (cluster_fd,):
        _sync_filesystem(cluster_fd)


@contextmanager
def _secret(text: str, reader: Account | None) -> Iterator[int]:
    """A descriptor from which a child of this account reads the text once; it is in no folder."""
    reading, writing = os.pipe()
    try:
        if reader is not None:
            os.fchown(reading, reader.uid, reader.gid)
        os.write(writing, text.encode())
        os.close(writing)
        yield reading
    finally:
        os.close(reading)


def _sync_filesystem(descriptor: int) -> None:
    """Everything on the disk that this file is on; returns when it is safe."""
    if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
        raise OSError(ctypes.get_errno(), "syncfs")


def _give(folder: Path, account: Account) -> None:
    for place, _, files in os.walk(folder):
        os.chown(place, account.uid, account.gid)
        for name in files:
            os.chown(os.path.join(place, name), account.uid, account.gid, follow_symlinks=False)


# --- ending what a killed run has left


def cluster_mark(cluster: Path) -> str:
    """What every process of this cluster bears in its title (as `cluster_name`)."""
    place = cluster.stat()
    return f"dgsf-{place.st_dev:x}-{place.st_ino:x}"


def processes_of(cluster: Path) -> list[int]:
    """The server processes of this cluster that live now."""
    if not cluster.exists():
        return []
    mark = cluster_mark(cluster).encode()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _bears(name, mark)]


def _bears(pid: str, mark: bytes) -> bool:
    try:
        if Path(f"/proc/{pid}/comm").read_bytes() != b"postgres\n":
            return False
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").replace(b"=", b" ").replace(b":", b" ")
    except OSError:
        return False  # it has just ended
    return mark in words.split()


def end_leftovers(cluster: Path) -> None:
    """Ends every server process of this cluster, then forgets the pid file.

    The caller holds the lock of the data folder, so no server of this cluster has a parent any more.
    """
    deadline = time.monotonic() + _END_SECONDS
    pause = 0.002
    while found := processes_of(cluster):
        by_force = time.monotonic() > deadline
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if by_force else signal.SIGQUIT)
                os.kill(pid, signal.SIGCONT)  # one that was stopped would not hear the other
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
    (cluster / "postmaster.pid").unlink(missing_ok=True)


if __name__ == "__main__":
    _parent, _signal, _uid, _gid = map(int, sys.argv[1:5])
    _become(_parent, _signal, _uid, _gid, sys.argv[5:])
