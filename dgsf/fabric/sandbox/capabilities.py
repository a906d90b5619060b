"""Capabilities: none, for good.

The bounding set is emptied first, so that no program can give one back, then all sets of this process;
no_new_privs makes set-user-id programs ordinary ones.
"""

from __future__ import annotations

import ctypes

from dgsf.fabric.sandbox import libc

_VERSION_3 = 0x20080522
_LAST_POSSIBLE = 63
_EINVAL, _EPERM = 22, 1


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def drop_all() -> None:
    _empty_bounding_set()
    libc.prctl(libc.PR_CAP_AMBIENT, libc.PR_CAP_AMBIENT_CLEAR_ALL)
    header, sets = _Header(_VERSION_3, 0), (_Sets * 2)()
    libc.syscall("capset", libc.older_number("capset"), ctypes.byref(header), ctypes.byref(sets))


def _empty_bounding_set() -> None:
    for capability in range(_LAST_POSSIBLE + 1):
        try:
            libc.prctl(libc.PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno == _EINVAL:  # past the last one that this kernel knows
                return
            if error.errno == _EPERM:  # without a user namespace of our own we may not: the sets below still go
                return
            raise


def forbid_new_privileges() -> None:
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
