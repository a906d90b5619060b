"""Landlock: a second wall behind the file system and the network namespace.

Reading and running programs is allowed everywhere (the root holds nothing else), writing only in the
worker's own folders.  Where the kernel knows how, TCP is refused without the network, and abstract Unix
sockets and signals stay inside.  Children inherit it and cannot take it off.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

from dgsf.fabric.sandbox import libc
from dgsf.fabric.spec import CONTENTS_MOUNT, SHARED_MOUNT

_VERSION_QUERY = 1
_RULE_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_DEVICE = _READ_FILE | _WRITE_FILE | _IOCTL_DEV
_MAKE_BLOCK, _MAKE_CHAR = 1 << 11, 1 << 6
_NET_BIND, _NET_CONNECT = 1, 2
_SCOPE_ABSTRACT_UNIX, _SCOPE_SIGNAL = 1, 2
_MAKE_FILE, _REMOVE_FILE = 1 << 8, 1 << 5
_SCRATCH = ("/tmp", "/dev/shm")  # noqa: S108 - the worker's own
_SHARED = _READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE | _MAKE_FILE | _REMOVE_FILE  # plain files, nothing else


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def version() -> int:
    """The kernel's Landlock ABI; OSError if it has none."""
    return libc.syscall(
        "landlock", libc.SYS_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION_QUERY)
    )


def handled_file_rights(abi: int) -> int:
    """All file rights that this ABI can refuse."""
    rights = (1 << 13) - 1
    rights |= _REFER if abi >= 2 else 0
    rights |= _TRUNCATE if abi >= 3 else 0
    return rights | (_IOCTL_DEV if abi >= 5 else 0)


def restrict(*, network: bool, devices: tuple[str, ...]) -> list[str]:
    """Put this process and its children under the rules; returns what was put in force."""
    abi = version()
    rights = handled_file_rights(abi)
    net = _NET_BIND | _NET_CONNECT if abi >= 4 and not network else 0
    scoped = _SCOPE_ABSTRACT_UNIX | _SCOPE_SIGNAL if abi >= 6 else 0
    ruleset = _create(_Ruleset(rights, net, scoped), abi)
    try:
        _allow(ruleset, "/", _READ & rights)
        for path in _SCRATCH:
            _allow(ruleset, path, rights & ~(_MAKE_BLOCK | _MAKE_CHAR))
        for path in (SHARED_MOUNT, CONTENTS_MOUNT):
            _allow(ruleset, path, _SHARED & rights)
        for path in devices:
            with contextlib.suppress(FileNotFoundError):
                _allow(ruleset, path, _DEVICE & rights)
        libc.syscall("landlock", libc.SYS_LANDLOCK_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0))
    finally:
        os.close(ruleset)
    return [f"ABI {abi}"] if abi >= 6 else [f"ABI {abi}", "abstract Unix sockets and signals need ABI 6"]


def _create(rules: _Ruleset, abi: int) -> int:
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8  # older kernels know a shorter structure
    return libc.syscall(
        "landlock", libc.SYS_LANDLOCK_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), ctypes.c_uint(0)
    )


def _allow(ruleset: int, path: str, rights: int) -> None:
    parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = _PathBeneath(rights, parent)
        libc.syscall(
            "landlock",
            libc.SYS_LANDLOCK_ADD_RULE,
            ctypes.c_int(ruleset),
            ctypes.c_int(_RULE_PATH_BENEATH),
            ctypes.byref(rule),
            ctypes.c_uint(0),
        )
    finally:
        os.close(parent)
