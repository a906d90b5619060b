"""Files in shared memory that are written over instead of made anew.

A page of a new file must be found, zeroed and in the end freed; writing over pages that are there costs a
fifth of that.  A kept file has one name of its own here and one more for each holder of its content, so
its link count tells when it is free again: when every holder has dropped its name.  Files are never shared
between tenants: whoever once held one might have kept it open.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from dataclasses import dataclass

KEPT_FILES = 8
KEPT_BYTES = 64 * 1024 * 1024
KEPT_SECONDS = 10.0
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


@dataclass(slots=True)
class _Kept:
    descriptor: int
    path: str
    used_at: float


class FilePool:
    """The kept files of one tenant in one folder."""

    def __init__(self, folder: str, mode: int, files: int = KEPT_FILES) -> None:
        self._folder = folder
        self._mode = mode
        self._files = files
        self._kept: list[_Kept] = []

    def file_for(self, path: str) -> int:
        """A file that can be written from its start, known by this path from now on; whoever asks closes it."""
        kept = self._free() or self._new()
        if kept is None:
            return os.open(path, _FLAGS, self._mode)
        os.link(kept.path, path)
        kept.used_at = time.monotonic()
        os.lseek(kept.descriptor, 0, os.SEEK_SET)
        return os.dup(kept.descriptor)

    def trim(self, now: float | None = None) -> None:
        """Let go of what nobody has used for a while, and of what is too large to keep."""
        now = time.monotonic() if now is None else now
        left, room = [], KEPT_BYTES
        for kept in self._kept:
            found = os.fstat(kept.descriptor)
            room -= found.st_size
            if now - kept.used_at > KEPT_SECONDS or (room < 0 and found.st_nlink == 1):
                self._drop(kept)
            else:
                left.append(kept)
        self._kept = left

    def __len__(self) -> int:
        return len(self._kept)

    def _free(self) -> _Kept | None:
        for kept in self._kept:
            if os.fstat(kept.descriptor).st_nlink == 1:
                return kept
        return None

    def _new(self) -> _Kept | None:
        if len(self._kept) >= self._files:
            return None
        path = os.path.join(self._folder, f"kept-{os.getpid()}-{secrets.token_hex(6)}")
        kept = _Kept(os.open(path, _FLAGS, self._mode), path, time.monotonic())
        self._kept.append(kept)
        return kept

    def _drop(self, kept: _Kept) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(kept.path)
        os.close(kept.descriptor)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write from the present position and end the file there."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.ftruncate(descriptor, os.lseek(descriptor, 0, os.SEEK_CUR))
