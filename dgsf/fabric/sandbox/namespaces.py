"""Namespaces: what a worker cannot even name.

The zygote enters its own pid namespace (as an ordinary user also a user namespace, which gives it the
rights to make more), so that its end is the end of everything below it, whatever those processes did.
Each worker then gets pid, mount, network, ipc, uts and cgroup namespaces of its own, and last a user
namespace in which it has no rights over any of them.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import os
from collections.abc import Iterator

from dgsf.fabric.sandbox import libc
from dgsf.fabric.sandbox.features import Features

HINT = "run as root, or allow unprivileged user namespaces (sysctl user.max_user_namespaces, AppArmor)"


def enter_zygote_namespaces(features: Features) -> None:
    """Called before the first fork: the next child is process 1 of its own pid namespace."""
    if os.geteuid() != 0:
        uid, gid = os.geteuid(), os.getegid()
        with features.needed("user namespace", HINT):
            libc.unshare(libc.CLONE_NEWUSER)
            map_ids("/proc/self", uid, gid)
    with features.optional("pid namespace"):
        libc.unshare(libc.CLONE_NEWPID)


def map_ids(proc_self: str, uid: int, gid: int) -> None:
    """Give the user namespace just entered one user and one group: the ones that it came with."""
    with contextlib.suppress(OSError):  # kernels before 3.19 do not have it
        _write(f"{proc_self}/setgroups", "deny")
    _write(f"{proc_self}/uid_map", f"{uid} {uid} 1\n")
    _write(f"{proc_self}/gid_map", f"{gid} {gid} 1\n")


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


class PidNamespaces:
    """Lets each fork begin a new pid namespace while the zygote itself stays where it is."""

    def __init__(self) -> None:
        self._own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self.usable = True
        self.detail = ""

    @contextlib.contextmanager
    def fresh(self) -> Iterator[None]:
        """A fork in here is process 1 of a new namespace, where the kernel lets us."""
        entered = self._unshare()
        try:
            yield
        finally:
            if entered:
                libc.setns(self._own, libc.CLONE_NEWPID)

    def _unshare(self) -> bool:
        if not self.usable:
            return False
        try:
            libc.unshare(libc.CLONE_NEWPID)
        except OSError as error:
            self.usable, self.detail = False, str(error)
            return False
        return True


def enter_worker_namespaces(features: Features, *, network: bool) -> None:
    """Own mounts, IPC, host name and cgroup view, and an empty network unless one is granted."""
    wanted = dict(_OTHERS if network else (*_OTHERS, ("network", libc.CLONE_NEWNET)))
    try:
        libc.unshare(libc.CLONE_NEWNS | functools.reduce(operator.or_, wanted.values()))  # one call is much cheaper
    except OSError:
        _enter_one_by_one(features, wanted)
        return
    for name in ("mount", *wanted):
        features.note(f"{name} namespace", True)


def _enter_one_by_one(features: Features, wanted: dict[str, int]) -> None:
    with features.needed("mount namespace", HINT):
        libc.unshare(libc.CLONE_NEWNS)
    for name, flag in wanted.items():
        with features.optional(f"{name} namespace"):
            libc.unshare(flag)


_OTHERS = (("ipc", libc.CLONE_NEWIPC), ("uts", libc.CLONE_NEWUTS), ("cgroup", libc.CLONE_NEWCGROUP))


def become(uid: int, features: Features) -> None:
    """As root: be another user from here on. The kernel also forgets our rights and the parent-death signal."""
    if uid == 0:
        features.note("own user id", False, "the worker runs as the platform's own user")
        return
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    libc.prctl(libc.PR_SET_DUMPABLE, 1)  # else the next step could not write its own /proc/self/uid_map
    features.note("own user id", True, str(uid))


def enter_own_user_namespace(proc_self: str, features: Features) -> None:
    if not proc_self:  # without a map we would be nobody, and own nothing
        features.note("own user namespace", False, "there is no /proc to map the user in")
        return
    uid, gid = os.geteuid(), os.getegid()
    with features.optional("own user namespace"):
        libc.unshare(libc.CLONE_NEWUSER)
        map_ids(proc_self, uid, gid)
