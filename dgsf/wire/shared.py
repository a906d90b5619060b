"""Shared memory on one node: payloads as files in a private folder of /dev/shm.

The gateway writes a large body into `in/`; the proxy hard-links it into the folder of the worker that
will run the call, the only one of these folders that the worker's sandbox shows.  A large result comes
back as a file there.  What a worker wrote is never trusted: it is opened without following links, must be
a plain file, and is read by its real size.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from pathlib import Path

from dgsf.errors import ProtocolError
from dgsf.wire.recycle import FilePool

ROOT = Path("/dev/shm")  # noqa: S108 - a private folder below it


class SharedArea:
    """The shared-memory folder of one platform on one node."""

    def __init__(self, name: str) -> None:
        self.folder = ROOT / name
        self._incoming = self.folder / "in"
        self._kept = self.folder / "kept"
        self._pools: dict[int, FilePool] = {}

    def make(self) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        if self.folder.stat().st_uid != os.geteuid():
            raise ProtocolError(f"{self.folder} belongs to another user")
        for folder in (self._incoming, self._kept):
            folder.mkdir(mode=0o700, exist_ok=True)
        for left in self._kept.glob("kept-*"):
            _remove_if_orphaned(left, left.name.split("-")[1])
        for left in self._incoming.glob("*-*"):
            _remove_if_orphaned(left, left.name.split("-")[0])

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def worker_folder(self, worker_id: int, device: str) -> Path:
        return self.folder / f"{device}-{worker_id}"

    def new_file(self, tenant_id: int = 0) -> tuple[int, str]:
        """A descriptor and path for a payload that comes in; readable by workers, writable by us.

        A tenant's files are used again for its next payloads: whoever writes one must end it where it ends.
        """
        path = self._new_path()
        if not tenant_id:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), path
        pool = self._pools.get(tenant_id)
        if pool is None:
            pool = self._pools[tenant_id] = FilePool(str(self._kept), 0o644)
        return pool.file_for(path), path

    def trim(self) -> None:
        """Let go of kept files that nobody used for a while."""
        for tenant_id, pool in list(self._pools.items()):
            pool.trim()
            if not len(pool):
                del self._pools[tenant_id]

    def link(self, path: str) -> str:
        """Another name for a payload, so that two holders can each drop their own."""
        other = self._new_path()
        os.link(path, other)
        return other

    def take(self, folder: str, name: str, size: int, limit: int) -> str:
        """The path of a result that a worker left, moved out of its reach and found to be what it says."""
        if os.sep in name or name.startswith(".") or not name:
            raise ProtocolError("a result with an unlawful name")
        path = self._new_path()
        try:
            os.rename(os.path.join(folder, name), path)
            found = os.lstat(path)
        except OSError as error:
            raise ProtocolError("a result that is not there") from error
        if not stat.S_ISREG(found.st_mode) or found.st_size != size or size > limit:
            _discard_any(path)
            raise ProtocolError("a result that is not what it says")
        return path

    def _new_path(self) -> str:
        """A name that says whose it is, so that what a dead process left can be told from what is in use."""
        return str(self._incoming / f"{os.getpid()}-{secrets.token_hex(12)}")


def _remove_if_orphaned(left: Path, pid: str) -> None:
    if pid.isdigit() and not Path("/proc", pid).exists():
        left.unlink(missing_ok=True)


def _discard_any(path: str) -> None:
    """Remove what a worker left, which may also be a folder; it never stands in the way of the rest."""
    try:
        os.unlink(path)
    except OSError:
        shutil.rmtree(path, ignore_errors=True)


def lend(path: str, folder: str) -> str:
    """Show a payload to a worker; returns its name there."""
    name = os.path.basename(path)
    os.link(path, os.path.join(folder, name))
    return name


def discard(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
