"""Runs a command as an ordinary user, for root: `python as_ordinary_user.py UID COMMAND...`.

Python may live where only root can look (/root/.pyenv, say).  In a mount namespace of its own the folders on
the way are covered by ones that everybody may pass, in which only the needed folders show.
"""

import os
import stat
import sys
import tempfile
from pathlib import Path

from dgsf.fabric.sandbox import libc


def blocked_at(path):
    """The first folder on the way to a path that others may not pass, or None."""
    for folder in [*reversed(Path(path).parents), Path(path)]:
        if not stat.S_IMODE(folder.stat().st_mode) & stat.S_IXOTH:
            return folder
    return None


def open_ways(paths):
    """Make every path reachable for everybody, in this mount namespace only."""
    libc.unshare(libc.CLONE_NEWNS)
    libc.mount("none", "/", "", libc.MS_REC | libc.MS_PRIVATE)
    stage = tempfile.mkdtemp()
    libc.mount("stage", stage, "tmpfs", 0, "mode=755")
    for number, path in enumerate(sorted(paths)):
        folder = blocked_at(path)
        if folder is None:
            continue
        held = f"{stage}/{number}"
        os.mkdir(held)
        libc.mount(str(path), held, "", libc.MS_BIND | libc.MS_REC)
        libc.mount("way", str(folder), "tmpfs", 0, "mode=755")
        os.makedirs(path, exist_ok=True)
        libc.mount(held, str(path), "", libc.MS_BIND | libc.MS_REC)


def main():
    uid, command = int(sys.argv[1]), sys.argv[2:]
    root = str(Path(__file__).resolve().parents[2])
    open_ways({os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, root)})
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
