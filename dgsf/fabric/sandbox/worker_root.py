"""One worker's own part of the file system: scratch space, its shared folder, /proc, and its name.

It is put over the zygote's root in a copy of the zygote's mounts; last, the host's root is let go, and with
it everything that was not shown on purpose.
"""

from __future__ import annotations

import os

from dgsf.fabric.sandbox import libc
from dgsf.fabric.sandbox.features import Features
from dgsf.fabric.sandbox.mounts import (
    ATTR_NODEV,
    ATTR_NOEXEC,
    ATTR_NOSUID,
    ATTR_RDONLY,
    protect,
    write_file,
)
from dgsf.fabric.sandbox.rootfs import OUTSIDE, Plan
from dgsf.fabric.spec import CONTENTS_MOUNT, SHARED_MOUNT, WorkerSpec

_TMP, _SHM = "/tmp", "/dev/shm"  # noqa: S108 - the worker's own


def _make_folders(path: str) -> None:
    """A folder and those above it, open to every user whatever the umask."""
    if not os.path.isdir(path):
        _make_folders(os.path.dirname(path))
        os.mkdir(path)
        os.chmod(path, 0o755)  # noqa: S103 - as in any root file system


class WorkerRoot:
    """Builds it, and keeps a writable way to /proc until the user ids are mapped."""

    def __init__(self, plan: Plan, spec: WorkerSpec, features: Features) -> None:
        self._plan = plan
        self._spec = spec
        self._features = features
        self._proc = -1

    @property
    def proc_self(self) -> str:
        """/proc/self by a way that is still writable; empty without a /proc of our own."""
        return f"/proc/self/fd/{self._proc}/self" if self._proc >= 0 else ""

    def build(self) -> None:
        with self._features.needed("own root file system", "mounting must be allowed in a mount namespace"):
            self._make_scratch()
            self._show_folders()
            self._make_proc()
            if self._spec.network:
                for item in self._plan.network:
                    libc.mount(OUTSIDE + item.source, item.target, "", libc.MS_BIND)
                    protect(item.target, recursive=False)
            libc.umount(OUTSIDE, libc.MNT_DETACH)
            os.chdir(_TMP)

    def close(self) -> None:
        if self._proc >= 0:
            os.close(self._proc)
            self._proc = -1

    def _make_scratch(self) -> None:
        """One tmpfs bounds /tmp and /dev/shm together by the worker's memory."""
        size = f"mode=755,size={self._spec.memory_bytes},nr_inodes=65536"
        shown = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in self._below_scratch()]
        libc.mount("scratch", _TMP, "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, size)
        for name in ("tmp", "shm"):
            os.mkdir(f"{_TMP}/{name}")
            os.chmod(f"{_TMP}/{name}", 0o1777)  # noqa: S103 - like any /tmp
        self._make_names()
        libc.mount(f"{_TMP}/shm", _SHM, "", libc.MS_BIND)
        libc.mount(_TMP + "/tmp", _TMP, "", libc.MS_BIND)  # noqa: S108
        for path, descriptor in shown:
            _make_folders(path)
            libc.mount(f"/proc/self/fd/{descriptor}", path, "", libc.MS_BIND | libc.MS_REC)
            protect(path)
            os.close(descriptor)

    def _below_scratch(self) -> list[str]:
        """What is shown of the host below /tmp or /dev/shm (a Python that was installed there) stays visible."""
        return [item.target for item in self._plan.shown if item.target.startswith((_TMP + "/", _SHM + "/"))]

    def _make_names(self) -> None:
        uid, gid = self._spec.uid or os.geteuid(), self._spec.uid or os.getegid()
        write_file(f"{_TMP}/passwd", f"root:x:0:0::/tmp:/bin/sh\nworker:x:{uid}:{gid}::/tmp:/bin/sh\n")
        write_file(f"{_TMP}/group", f"root:x:0:\nworker:x:{gid}:\n")
        for name in ("passwd", "group"):
            libc.mount(f"{_TMP}/{name}", f"/etc/{name}", "", libc.MS_BIND)
            protect(f"/etc/{name}", recursive=False)

    def _show_folders(self) -> None:
        """Its own folder in shared memory and, to a session, what its tenant's sessions have uploaded."""
        shown = {SHARED_MOUNT: self._spec.shared_dir, CONTENTS_MOUNT: self._spec.contents_dir}
        for target, source in shown.items():
            if source:
                libc.mount(OUTSIDE + source, target, "", libc.MS_BIND)
                protect(target, ATTR_NOSUID | ATTR_NODEV | ATTR_NOEXEC)

    def _make_proc(self) -> None:
        """A /proc of the worker's pid namespace, read-only, and a descriptor of it that is not."""
        libc.umount("/proc", libc.MNT_DETACH)  # the zygote's
        with self._features.optional("own /proc"):
            libc.mount("proc", "/proc", "proc", libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC)
            self._proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            libc.mount("/proc", "/proc", "", libc.MS_BIND)
            protect("/proc", ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV | ATTR_NOEXEC)
