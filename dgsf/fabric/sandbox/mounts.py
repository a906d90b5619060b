"""Small steps of mounting that both the zygote and its workers take."""

from __future__ import annotations

import os

from dgsf.fabric.sandbox import libc

ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC = 1, 2, 4, 8
_LOCKED = {os.ST_NOSUID: libc.MS_NOSUID, os.ST_NODEV: libc.MS_NODEV, os.ST_NOEXEC: libc.MS_NOEXEC}


def write_file(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def protect(path: str, attributes: int = ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, *, recursive: bool = True) -> None:
    """Read-only, no set-user-id, no devices; older kernels do it mount by mount."""
    try:
        libc.mount_setattr(path, attributes, recursive=recursive)
    except OSError:
        flags = libc.MS_BIND | libc.MS_REMOUNT | attributes  # the low bits mean the same in both calls
        held = os.statvfs(path).f_flag
        for bit, flag in _LOCKED.items():
            flags |= flag if held & bit else 0
        libc.mount("none", path, "", flags)


def bind(source: str, target: str) -> None:
    """Show a folder or file at another place, which is made if need be."""
    if os.path.isdir(source):
        os.makedirs(target, 0o755, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
        write_file(target, "")
    libc.mount(source, target, "", libc.MS_BIND | libc.MS_REC)
