"""TCP options of a session's connection: nothing is held back, and a host that vanished without a word is noticed.

The kernels ask and answer, so a program that is busy or asleep is alive; only a host that is off or cut off is not.
"""

from __future__ import annotations

import socket

IDLE_SECONDS = 1  # without a byte before the first question
PROBES = 4  # a second apart
SILENT_MS = (IDLE_SECONDS + PROBES) * 1000  # bytes that nobody confirms for so long mean the same


def watch_peer(sock: socket.socket) -> None:
    """For a connected TCP socket; others are left as they are."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", IDLE_SECONDS),
        ("TCP_KEEPINTVL", 1),
        ("TCP_KEEPCNT", PROBES),
        ("TCP_USER_TIMEOUT", SILENT_MS),
    ):
        option = getattr(socket, name, None)  # not every system has them all
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
