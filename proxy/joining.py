"""Connections to the workers of a device server: a new worker's first one, and the second of one that runs.

Both are the same three steps: connect with a handshake, say in one frame what the connection is for, and
hear in one frame whose it is now.
"""

from __future__ import annotations

import asyncio
import socket

from dgsf.errors import ConnectionLost, ProtocolError
from dgsf.wire.frames import Kind, encode_frame
from dgsf.wire.handshake import read_frame
from dgsf.wire.link import Address, connect_socket
from dgsf.wire.messages import Attached, Join, encode, reader
from proxy.directory import Directory
from proxy.post import Post

ANSWER_SECONDS = 20.0
_read_attached = reader(Attached)


async def ask_host(sock: socket.socket, kind: Kind, body: bytes) -> Attached:
    """Say what this connection is for; returns whose it is, or raises why not."""
    try:
        await asyncio.get_running_loop().sock_sendall(sock, encode_frame(kind, 0, body))
    except OSError as error:
        raise ConnectionLost(f"connection lost: {error}") from error
    frame = await read_frame(sock, ANSWER_SECONDS)
    if frame.kind != Kind.ATTACHED:
        raise ProtocolError(f"expected ATTACHED, got a frame of kind {frame.kind}")
    attached: Attached = _read_attached(frame.body)
    if attached.failure is not None:
        raise attached.failure.error()
    return attached


async def join_worker(directory: Directory, secret: bytes, post: Post) -> socket.socket:
    """A second connection to a worker of a function host; the other end is the worker's own."""
    sock = await connect_socket(Address.of(post.device), secret, here=directory.here, tcp=directory.tcp)
    try:
        join = Join(post.worker_id, post.lease.epoch, post.lease.device_incarnation)
        await ask_host(sock, Kind.JOIN, encode(join))
    except BaseException:
        sock.close()
        raise
    return sock
