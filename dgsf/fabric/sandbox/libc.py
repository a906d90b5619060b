"""The few system calls of the sandbox that Python does not offer, by ctypes.

Every wrapper raises OSError with the call's name, so that a missing kernel feature can be told by name.
Nothing here decides anything.
"""

from __future__ import annotations

import ctypes
import os
import platform

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
CLONE_NEWTIME = 0x00000080

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_TIMERSLACK = 1, 4, 29
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 24, 38, 47, 4
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2

# The numbers of the newer calls are the same on every architecture; the two older ones are not.
SYS_CLOSE_RANGE = 436
SYS_MOUNT_SETATTR = 442
SYS_LANDLOCK_CREATE_RULESET, SYS_LANDLOCK_ADD_RULE, SYS_LANDLOCK_RESTRICT_SELF = 444, 445, 446
_OLDER = {"x86_64": {"pivot_root": 155, "capset": 126}, "aarch64": {"pivot_root": 41, "capset": 91}}

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long
_mount = _libc.mount
_mount.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p]
_prctl = _libc.prctl
_prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4


def machine() -> str:
    return platform.machine()


def older_number(name: str) -> int:
    """The number of a system call that differs between architectures."""
    try:
        return _OLDER[machine()][name]
    except KeyError:
        raise OSError(38, f"{name}: no number known for {machine()}") from None


def fail(name: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{name}: {os.strerror(number)}")


def syscall(name: str, number: int, *arguments: object) -> int:
    result = int(_syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        raise fail(name)
    return result


def unshare(flags: int) -> None:
    if _libc.unshare(flags) != 0:
        raise fail("unshare")


def setns(descriptor: int, flags: int) -> None:
    if _libc.setns(descriptor, flags) != 0:
        raise fail("setns")


def prctl(option: int, a: int = 0, b: int = 0, c: int = 0, d: int = 0) -> int:
    result = int(_prctl(option, a, b, c, d))
    if result < 0:
        raise fail(f"prctl({option})")
    return result


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    given = data.encode() if data else None
    if _mount(source.encode(), target.encode(), kind.encode(), flags, given) != 0:
        raise fail(f"mount {target}")


def umount(target: str, flags: int) -> None:
    if _libc.umount2(target.encode(), flags) != 0:
        raise fail(f"umount {target}")


def pivot_root(new_root: str, put_old: str) -> None:
    number = older_number("pivot_root")
    syscall("pivot_root", number, ctypes.c_char_p(new_root.encode()), ctypes.c_char_p(put_old.encode()))


def close_range(first: int, last: int = 0xFFFFFFFF) -> None:
    """Close all descriptors from first to last; without the system call, those that /proc tells of."""
    try:
        syscall("close_range", SYS_CLOSE_RANGE, ctypes.c_uint(first), ctypes.c_uint(last), ctypes.c_uint(0))
    except OSError:
        os.closerange(first, min(last, 1 << 16))


class MountAttributes(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def mount_setattr(path: str, add: int, *, recursive: bool = True) -> None:
    attributes = MountAttributes(add, 0, 0, 0)
    syscall(
        "mount_setattr",
        SYS_MOUNT_SETATTR,
        ctypes.c_int(-100),
        ctypes.c_char_p(path.encode()),
        ctypes.c_uint(0x8000 if recursive else 0),
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )


def die_with_parent(signal_number: int) -> None:
    prctl(PR_SET_PDEATHSIG, signal_number)
