"""A pair of listening sockets: a Unix path for this host, for its owner alone, and a TCP port for others."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

BACKLOG = 256


def listen_on_both(unix_path: Path, tcp_host: str, tcp_port: int = 0) -> list[socket.socket]:
    """The near and the far one, not blocking; a path that a killed process left is taken over."""
    with contextlib.suppress(FileNotFoundError):
        unix_path.unlink()
    near = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        near.bind(str(unix_path))
        os.chmod(unix_path, 0o600)
        near.listen(BACKLOG)
        far = socket.create_server((tcp_host, tcp_port), backlog=BACKLOG)
    except BaseException:
        near.close()
        raise
    for listener in (near, far):
        listener.setblocking(False)
    return [near, far]
