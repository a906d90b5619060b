"""Where one platform keeps its things on one machine.

The data dir holds what must last: database, keys, logs.  The run dir holds sockets and Ray's session; it
is a short private folder, because a Unix socket's path may have 107 bytes only.  Both are named by the
platform's mark, a hash of the absolute data dir, which all its processes carry in their environment.
Folders are 0700 and must belong to us: a folder that somebody else made there is refused, never repaired.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from dgsf.config import Settings
from dgsf.errors import StartError

_RUN_ROOT = Path("/tmp")  # noqa: S108 - only for a private folder whose owner and mode are checked


@dataclass(frozen=True, slots=True)
class Layout:
    """Every path of one platform on this machine; nothing is made by asking for it."""

    data_dir: Path
    mark: str

    @property
    def run_dir(self) -> Path:
        return run_dir_of(self.mark)

    @property
    def shared_name(self) -> str:
        """The name of the shared-memory area, for dgsf.wire.shared.SharedArea."""
        return f"dgsf-{os.geteuid()}-{self.mark}"

    @property
    def logs(self) -> Path:
        return self.data_dir / "logs"

    @property
    def postgres(self) -> Path:
        return self.data_dir / "postgres"

    @property
    def ray(self) -> Path:
        return self.run_dir / "ray"

    @property
    def client_file(self) -> Path:
        return self.data_dir / "client.json"

    @property
    def secret_file(self) -> Path:
        return self.data_dir / "cluster.secret"

    @property
    def ray_token_file(self) -> Path:
        return self.data_dir / "ray.token"

    @property
    def lock_file(self) -> Path:
        return self.data_dir / "lock"

    @property
    def processes_file(self) -> Path:
        return self.data_dir / "processes.json"


def layout_of(settings: Settings) -> Layout:
    """The layout of the platform that these settings belong to."""
    data_dir = settings.data_dir.expanduser().absolute()
    return Layout(data_dir, settings.mark or mark_of(data_dir))


def run_dir_of(mark: str) -> Path:
    """Short, because of the sockets in it."""
    return _RUN_ROOT / f"dgsf-{os.geteuid()}-{mark}"


def mark_of(data_dir: Path) -> str:
    """A short name for one data dir on this machine."""
    return hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:12]


def private_folder(path: Path) -> Path:
    """Make a folder for us alone, or check that the one that is there is that."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise StartError(f"cannot make the folder {path}: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise StartError(f"{path} is not a folder; remove it and start again")
    if found.st_uid != os.geteuid():
        raise StartError(f"{path} belongs to user id {found.st_uid}, not to {os.geteuid()}; choose another --data-dir")
    if found.st_mode & 0o022:
        raise StartError(f"{path} can be written by others (mode {found.st_mode & 0o777:o}); run: chmod 700 {path}")
    return path


def write_private(path: Path, text: str) -> None:
    """Write a file that only we can read; whoever reads sees the old text or the new one, never a half."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def secret_in(path: Path) -> str:
    """The secret kept in this file; made at the first use."""
    try:
        found = path.read_text().strip()
    except FileNotFoundError:
        found = ""
    if not found:
        found = secrets.token_hex(32)
        write_private(path, found + "\n")
    return found
