"""Contents that the device has already: files named by the hash of their bytes, shared by a tenant's sessions.

A content is published only after its bytes were hashed, by renaming, so a file under its name is whole.  It is
mapped privately: writing to such a tensor copies the page and never reaches the file.
"""

from __future__ import annotations

import contextlib
import os
import secrets

import torch

from dgsf.config import GIB
from dgsf.errors import ProtocolError
from dgsf.remoting.digest import DIGEST_BYTES, digest_of


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

    def publish(self, digest: bytes, raw: torch.Tensor) -> bool:
        """Keep these bytes under their name; False if it is not theirs."""
        data = memoryview(raw.numpy())
        if digest_of(data) != digest:
            return False
        if not self._folder:
            self._keep(digest, raw)
            return True
        path = os.path.join(self._folder, digest.hex())
        partial = os.path.join(self._folder, f".{secrets.token_hex(8)}")
        try:
            _write(partial, data)
            os.rename(partial, path)
        except OSError:  # full: this session goes on with its own copy
            with contextlib.suppress(OSError):
                os.unlink(partial)
            self._keep(digest, raw)
        return True

    def _keep(self, digest: bytes, raw: torch.Tensor) -> None:
        """In this process, where it counts for no lease: the oldest go first, and are asked for again if needed."""
        self._own[digest] = raw
        total = sum(kept.numel() for kept in self._own.values())
        while total > self._own_bytes and len(self._own) > 1:
            total -= self._own.pop(next(iter(self._own))).numel()


def _write(path: str, data: memoryview) -> None:
    """For all workers of the tenant, who have users of their own, to read; only they see the folder."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.fchmod(descriptor, 0o444)
        while data:
            data = data[os.write(descriptor, data) :]
    finally:
        os.close(descriptor)
