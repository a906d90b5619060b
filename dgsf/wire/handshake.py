"""The mutual HMAC handshake that opens every connection between parts of the platform.

Both sides prove that they hold the cluster secret, each over both nonces, so nothing can be replayed or
reflected.  It reads exact byte counts from a raw non-blocking socket, so that the bytes behind it are
untouched and the socket can be handed to another process.  It authenticates; it does not encrypt.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import socket

from dgsf.errors import ConnectionLost, ProtocolError
from dgsf.wire.frames import HEADER, HEADER_BYTES, MAX_BODY_BYTES, Frame, FrameReader

MAGIC = b"DGSF/1\r\n"
NONCE_BYTES = 32
PROOF_BYTES = 32
TIMEOUT_SECONDS = 10.0


def proof(secret: bytes, side: bytes, client_nonce: bytes, server_nonce: bytes) -> bytes:
    return hmac.new(secret, side + client_nonce + server_nonce, hashlib.sha256).digest()


async def shake_as_client(sock: socket.socket, secret: bytes, timeout: float = TIMEOUT_SECONDS) -> None:
    """Prove ourselves to a server and have it prove itself."""
    loop = asyncio.get_running_loop()
    async with _deadline(timeout):
        nonce = os.urandom(NONCE_BYTES)
        await loop.sock_sendall(sock, MAGIC + nonce)
        answer = await read_exactly(sock, NONCE_BYTES + PROOF_BYTES)
        server_nonce, given = answer[:NONCE_BYTES], answer[NONCE_BYTES:]
        if not hmac.compare_digest(given, proof(secret, b"server", nonce, server_nonce)):
            raise ProtocolError("the server does not hold this cluster's secret")
        await loop.sock_sendall(sock, proof(secret, b"client", nonce, server_nonce))


def shake_blocking(sock: socket.socket, secret: bytes) -> None:
    """As a client, over a blocking socket with its own timeout; OSError, ConnectionLost or ProtocolError."""
    nonce = os.urandom(NONCE_BYTES)
    sock.sendall(MAGIC + nonce)
    answer = b""
    while len(answer) < NONCE_BYTES + PROOF_BYTES:
        piece = sock.recv(NONCE_BYTES + PROOF_BYTES - len(answer))
        if not piece:
            raise ConnectionLost("connection closed by the other side")
        answer += piece
    server_nonce, given = answer[:NONCE_BYTES], answer[NONCE_BYTES:]
    if not hmac.compare_digest(given, proof(secret, b"server", nonce, server_nonce)):
        raise ProtocolError("the server does not hold this session's key")
    sock.sendall(proof(secret, b"client", nonce, server_nonce))


async def shake_as_server(sock: socket.socket, secret: bytes, timeout: float = TIMEOUT_SECONDS) -> None:
    """Have a client prove itself, and prove ourselves to it."""
    loop = asyncio.get_running_loop()
    async with _deadline(timeout):
        opening = await read_exactly(sock, len(MAGIC) + NONCE_BYTES)
        if opening[: len(MAGIC)] != MAGIC:
            raise ProtocolError("the client does not speak this protocol")
        client_nonce = opening[len(MAGIC) :]
        nonce = os.urandom(NONCE_BYTES)
        await loop.sock_sendall(sock, nonce + proof(secret, b"server", client_nonce, nonce))
        given = await read_exactly(sock, PROOF_BYTES)
        if not hmac.compare_digest(given, proof(secret, b"client", client_nonce, nonce)):
            raise ProtocolError("the client does not hold this cluster's secret")


async def read_exactly(sock: socket.socket, count: int) -> bytes:
    """Just so many bytes, not one more."""
    loop = asyncio.get_running_loop()
    parts = bytearray()
    while len(parts) < count:
        try:
            piece = await loop.sock_recv(sock, count - len(parts))
        except OSError as error:
            raise ConnectionLost(f"connection lost: {error}") from error
        if not piece:
            raise ConnectionLost("connection closed by the other side")
        parts += piece
    return bytes(parts)


async def read_frame(sock: socket.socket, timeout: float = TIMEOUT_SECONDS) -> Frame:
    """One frame from a raw socket, not one byte more."""
    async with _deadline(timeout):
        header = await read_exactly(sock, HEADER_BYTES)
        length = HEADER.unpack(header)[0]
        body = await read_exactly(sock, length) if length <= MAX_BODY_BYTES else b""
    return FrameReader().feed(header + body)[0]


class _deadline:
    """asyncio.timeout that tells of a lost connection, as every caller handles that."""

    def __init__(self, seconds: float) -> None:
        self._timeout = asyncio.timeout(seconds)
        self._seconds = seconds

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, *exc: object) -> None:
        try:
            await self._timeout.__aexit__(*exc)  # type: ignore[arg-type]  # the same triple, passed on
        except TimeoutError as error:
            raise ConnectionLost(f"no answer within {self._seconds:g} s") from error
        if exc[0] is not None and issubclass(exc[0], OSError):  # type: ignore[arg-type]  # a class or None
            raise ConnectionLost(f"connection lost: {exc[1]}")
