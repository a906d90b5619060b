"""A content on its way in: hashed as its bytes come, and meanwhile written straight to a file that has no name yet.

So it needs no memory beside that file, and is there a moment after its last byte.  Where no file can be had, or the
place for files is full, what has come so far and what follows is kept in memory instead.  The file is locked as long as
this process lives: one without a lock is nobody's, and the device server removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from dgsf.remoting.digest import new_hash
from dgsf.remoting.executor.uploads import Memory, Transfer, raw_memory
from dgsf.remoting.protocol import DRAFT_PREFIX


class Draft:
    """So many bytes, in a file of this folder unless there is none."""

    def __init__(self, folder: str, size: int) -> None:
        self._size = size
        self._filled = 0
        self._hash = new_hash()
        self._memory: Memory | None = None
        self._path = os.path.join(folder, f"{DRAFT_PREFIX}{secrets.token_hex(8)}") if folder else ""
        self._file = _new_file(self._path) if folder else None

    def add(self, data: memoryview) -> None:
        hashed = _beside(self._hash.update, data)
        try:
            self._keep(data)
        finally:
            hashed.result()  # the memory is used again for the bytes that come next

    def _keep(self, data: memoryview) -> None:
        if not self._write(data):
            self._in_memory()[1][self._filled : self._filled + len(data)] = data
        self._filled += len(data)

    def is_of(self, digest: bytes) -> bool:
        """Whether these are the bytes that have this name."""
        return bool(self._hash.digest() == digest)

    def publish(self, path: str) -> bool:
        """Give the file its name; False if the bytes are in memory."""
        if self._file is None:
            return False
        try:
            os.rename(self._path, path)
        except OSError:  # somebody has removed it, or its folder
            self._in_memory()
            return False
        os.close(self._file)
        self._file = None
        return True

    @property
    def raw(self) -> torch.Tensor:
        """The bytes, in memory."""
        return self._in_memory()[0]

    def drop(self) -> None:
        """Nobody wants it."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            os.close(self._file)
            self._file = None

    def _write(self, data: memoryview) -> bool:
        if self._file is None:
            return False
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError:  # full
            return False
        return True

    def _in_memory(self) -> Memory:
        """What has come so far is in memory from now on."""
        if self._memory is None:
            self._memory = raw_memory(self._size)
            if self._file is not None:
                _read_back(self._file, self._memory[1][: self._filled])
                self.drop()
        return self._memory


class ContentTransfer(Transfer):
    """The transfer of a content: its bytes pass through the session's small buffer into the draft."""

    __slots__ = ("_draft",)

    def __init__(self, draft: Draft, size: int, through: Memory) -> None:
        super().__init__(size, through)
        self.held_bytes = size
        self._draft = draft

    def landed(self) -> None:
        self._draft.add(self.passed())


def _new_file(path: str) -> int | None:
    """For all workers of the tenant, who have users of their own, to read; only they see the folder."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.fchmod(file, 0o444)
    except OSError:  # the device server has just found it without a lock, and removes it
        os.close(file)
        return None
    return file


def _read_back(file: int, target: memoryview) -> None:
    place = 0
    while place < len(target):
        count = os.preadv(file, [target[place:]], place)
        if not count:
            raise OSError("a content was cut short")
        place += count


_threads = ThreadPoolExecutor(1, "dgsf-hash")


def _beside(do: Callable[[memoryview], object], data: memoryview) -> Future[object]:
    """Done by another processor, or at once where there can be no other thread."""
    try:
        return _threads.submit(do, data)
    except RuntimeError:
        done: Future[object] = Future()
        done.set_result(do(data))
        return done
