"""Contents that the device has already: files named by the hash of their bytes, shared by a tenant's sessions.

A content is published only after its bytes were hashed (`drafts.py`), by renaming, so a file under its name is whole.
It is mapped privately: writing to such a tensor copies the page and never reaches the file.
"""

from __future__ import annotations

import contextlib
import os

import torch

from dgsf.config import GIB
from dgsf.errors import ProtocolError
from dgsf.remoting.digest import DIGEST_BYTES
from dgsf.remoting.executor.drafts import Draft


def check_digest(digest: object) -> bytes:
    if not isinstance(digest, bytes) or len(digest) != DIGEST_BYTES:
        raise ProtocolError(f"a content is named by the {DIGEST_BYTES} bytes of its hash")
    return digest


class Contents:
    """The store of one device and tenant; without a folder, or if that is full, of this session only and bounded."""

    def __init__(self, folder: str = "", own_bytes: int = 4 * GIB) -> None:
        self._folder = folder
        self._own: dict[bytes, torch.Tensor] = {}
        self._own_bytes = own_bytes

    def has(self, digest: bytes, size: int) -> bool:
        kept = self._own.get(digest)
        if kept is not None or not self._folder:
            return kept is not None and kept.numel() == size
        with contextlib.suppress(OSError):
            return os.stat(os.path.join(self._folder, digest.hex())).st_size == size
        return False

    def find(self, digest: bytes, size: int) -> torch.Tensor | None:
        """Its bytes, the caller's to write to; None if they are not here."""
        kept = self._own.get(digest)
        if kept is not None:
            return kept.clone() if kept.numel() == size else None
        if not self._folder:
            return None
        path = os.path.join(self._folder, digest.hex())
        try:
            if os.stat(path).st_size != size:
                return None
            with contextlib.suppress(PermissionError):  # another worker's, which has a user of its own
                os.utime(path)  # it was used: the oldest are removed first
            return torch.from_file(path, shared=False, size=size, dtype=torch.uint8)
        except (OSError, RuntimeError):  # removed in between
            return None

    def draft(self, size: int) -> Draft:
        """For a content that comes."""
        return Draft(self._folder, size)

    def publish(self, digest: bytes, draft: Draft) -> bool:
        """Keep what has come under its name; False if it is not that of these bytes."""
        if not draft.is_of(digest):
            draft.drop()
            return False
        if not (self._folder and draft.publish(os.path.join(self._folder, digest.hex()))):
            self._keep(digest, draft.raw)  # this session goes on with its own copy
        return True

    def _keep(self, digest: bytes, raw: torch.Tensor) -> None:
        """In this process, where it counts for no lease: the oldest go first, and are asked for again if needed."""
        self._own[digest] = raw
        total = sum(kept.numel() for kept in self._own.values())
        while total > self._own_bytes and len(self._own) > 1:
            total -= self._own.pop(next(iter(self._own))).numel()
