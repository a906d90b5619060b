"""The workers' file system: a new root on tmpfs, filled by allow-list.

Only what is named here exists for a worker: the operating system's programs and libraries, the Python
installation, this package, a few devices, and (in worker_root) its own writable folders.  Unix sockets that
are bound to a path, the data dir, other tenants' payloads and home folders are not hidden, they are not
there.  The zygote moves into this root once, and keeps the host's root under one name; a worker copies its
mounts and lets go of that name, which takes a fraction of the time.
"""

from __future__ import annotations

import os
import site
import sys
from dataclasses import dataclass
from pathlib import Path

from dgsf.fabric.sandbox import libc
from dgsf.fabric.sandbox.features import Features
from dgsf.fabric.sandbox.mounts import bind, protect, write_file
from dgsf.fabric.sandbox.namespaces import HINT
from dgsf.fabric.spec import CONTENTS_MOUNT, SHARED_MOUNT

OUTSIDE = "/.outside"  # the host's root while it can still be reached
_STAGE = "/tmp"  # noqa: S108 - only a mount point, and only in our own namespace
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = (
    "alternatives", "ca-certificates", "fonts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types",
    "OpenCL", "pki/tls/certs", "pki/ca-trust", "protocols", "services", "ssl/certs", "ssl/openssl.cnf", "timezone",
)  # fmt: skip
_ETC_NETWORK = ("resolv.conf", "hosts", "gai.conf", "host.conf")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_SYS = ("/sys/devices/system/cpu", "/sys/devices/system/node")


@dataclass(frozen=True, slots=True)
class Shown:
    """A folder or file of the host under the name that it has inside; symbolic links are followed outside."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is shown of the host, read-only; made once, before the fork."""

    shown: tuple[Shown, ...]
    network: tuple[Shown, ...]  # only if the worker has the network
    links: tuple[tuple[str, str], ...]
    devices: tuple[str, ...]


def plan_root(device_nodes: tuple[str, ...] = ()) -> Plan:
    """The allow-list for this machine and this Python."""
    links = tuple((path, os.readlink(path)) for path in _SYSTEM if os.path.islink(path))
    system = [path for path in _SYSTEM if os.path.isdir(path) and not os.path.islink(path)]
    python = [sys.prefix, sys.base_prefix, sys.exec_prefix, *site.getsitepackages(), _package_folder()]
    folders = _outermost([os.path.realpath(path) for path in (*system, *python) if os.path.isdir(path)])
    shown = [Shown(path, path) for path in folders]
    shown += _existing([f"/etc/{name}" for name in _ETC] + list(_SYS))
    nodes = tuple(f"/dev/{name}" for name in _DEVICES) + device_nodes
    network = _existing([f"/etc/{name}" for name in _ETC_NETWORK])
    return Plan(tuple(shown), tuple(network), links + _python_links(folders), nodes)


def _existing(paths: list[str]) -> list[Shown]:
    return [Shown(os.path.realpath(path), path) for path in paths if os.path.exists(path)]


def _package_folder() -> str:
    return str(Path(__file__).resolve().parents[2])


def _outermost(paths: list[str]) -> list[str]:
    """Without the ones that lie inside another."""
    kept: list[str] = []
    for path in sorted(set(paths)):
        if path != "/" and not any(path == other or path.startswith(other + "/") for other in kept):
            kept.append(path)
    return kept


def _python_links(shown: list[str]) -> tuple[tuple[str, str], ...]:
    """Where Python's folders are named through symbolic links, the same names must work inside."""
    named = {sys.prefix, sys.base_prefix, sys.exec_prefix}
    return tuple((path, os.path.realpath(path)) for path in sorted(named) if _reached_by_link(path, shown))


def _reached_by_link(path: str, shown: list[str]) -> bool:
    covered = any(path == folder or path.startswith(folder + "/") for folder in shown)
    return os.path.realpath(path) != path and not covered


def enter_root(plan: Plan, hidden: tuple[str, ...], features: Features) -> None:
    """Make the planned root this process's own; the host's is left under OUTSIDE."""
    with features.needed("mount namespace", HINT):
        libc.unshare(libc.CLONE_NEWNS)
    with features.needed("own root file system", "mounting must be allowed in a mount namespace"):
        _stage()
        _show(plan)
        _make_etc(plan)
        _make_dev(plan)
        for path in (SHARED_MOUNT, CONTENTS_MOUNT, "/tmp", "/dev/shm", "/proc"):  # noqa: S108 - filled by each worker
            os.makedirs(path, 0o755, exist_ok=True)
        _hide(hidden)
        _see_processes()
        protect("/", recursive=False)


def _stage() -> None:
    libc.mount("none", "/", "", libc.MS_REC | libc.MS_PRIVATE)
    libc.mount("root", _STAGE, "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, "mode=755,size=2m,nr_inodes=4096")
    os.mkdir(_STAGE + OUTSIDE, 0o700)
    libc.pivot_root(_STAGE, _STAGE + OUTSIDE)
    os.chdir("/")


def _show(plan: Plan) -> None:
    for path, target in plan.links:
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        os.symlink(target, path)
    for item in plan.shown:
        bind(OUTSIDE + item.source, item.target)
        protect(item.target)


def _make_etc(plan: Plan) -> None:
    """Small files of our own; each worker puts its user over them and, if granted, the network's names."""
    for item in plan.network:
        write_file(item.target, "")
    write_file("/etc/passwd", "root:x:0:0::/tmp:/bin/sh\n")
    write_file("/etc/group", "root:x:0:\n")
    write_file("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
    write_file("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n")


def _make_dev(plan: Plan) -> None:
    for path in plan.devices:
        if os.path.exists(OUTSIDE + path):
            bind(OUTSIDE + path, path)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink("/proc/self/fd" + target, f"/dev/{name}")


def _hide(paths: tuple[str, ...]) -> None:
    """Folders of the platform that happen to lie below one that is shown."""
    for path in paths:
        if os.path.isdir(path):
            libc.mount("hidden", path, "tmpfs", libc.MS_RDONLY | libc.MS_NOSUID | libc.MS_NODEV, "size=4k,mode=755")


def _see_processes() -> None:
    """The zygote's own /proc: of its pid namespace, or where that is refused the host's."""
    try:
        libc.mount("proc", "/proc", "proc", libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC)
    except OSError:
        libc.mount(OUTSIDE + "/proc", "/proc", "", libc.MS_BIND | libc.MS_REC)
