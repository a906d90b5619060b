"""What sessions have uploaded, kept by digest: one folder per tenant on this device, within a budget.

The folders lie in the platform's shared memory; a session's worker sees its own tenant's only.  Executors write
and verify the files; this module makes the folders and removes what was not used longest, and what an executor that
was killed has left unfinished.  A file that is mapped somewhere may be removed: who has it keeps it.  Nothing here
reads a content.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dgsf.remoting.protocol import DRAFT_PREFIX


@dataclass(frozen=True, slots=True)
class _Content:
    used: float  # when it was last read or written
    size: int
    path: str

    @property
    def is_abandoned(self) -> bool:
        """Unfinished, and whoever wrote it is gone: its lock went with it."""
        if not os.path.basename(self.path).startswith(DRAFT_PREFIX):
            return False
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(file)
        return True


class ContentsKeeper:
    """The contents of one device."""

    def __init__(self, area: Path, device: str, budget_bytes: int) -> None:
        self._root = area / f"contents-{device.replace('/', '-')}"
        self._budget = budget_bytes

    def folder(self, tenant_id: int) -> Path:
        """This tenant's folder. Its workers run as users of their own, so all of them must be able to write."""
        self._root.mkdir(mode=0o711, exist_ok=True)
        folder = self._root / str(tenant_id)
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o777)
        return folder

    def clear(self) -> None:
        shutil.rmtree(self._root, ignore_errors=True)

    def prune(self) -> int:
        """Remove what was not used longest until the rest fits the budget; returns the bytes removed."""
        removed = self.sweep()
        kept = 0
        for content in sorted(self._contents(), key=lambda content: content.used, reverse=True):
            if kept + content.size <= self._budget:
                kept += content.size
            else:
                removed += _remove(content)
        return removed

    def sweep(self) -> int:
        """Remove what executors that are gone have left unfinished; returns the bytes removed."""
        return sum(_remove(content) for content in self._contents() if content.is_abandoned)

    def _contents(self) -> Iterator[_Content]:
        for folder in self._list(self._root):
            for entry in self._list(Path(folder.path)):
                with contextlib.suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    yield _Content(max(found.st_atime, found.st_mtime), found.st_blocks * 512, entry.path)

    @staticmethod
    def _list(folder: Path) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                return list(entries)
        except OSError:
            return []


def _remove(content: _Content) -> int:
    """The bytes that are free now."""
    try:
        os.unlink(content.path)
    except OSError:
        return 0
    return content.size
