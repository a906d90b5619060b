"""Tickets: how a program that the gateway knows becomes a guest of a proxy, without the gateway in between.

The gateway signs what the session may have; the proxy believes the signature and asks nobody.  With the ticket the
program gets the session's own key, by which both sides prove themselves in the handshake (dgsf.wire.handshake): a
ticket that is overheard is worth nothing.  The key is never sent to the proxy, which derives it from the cluster's
secret.  At the door the guest sends MAGIC, the ticket's length (u16) and the ticket, then shakes hands.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Any

import msgspec

from dgsf.errors import SessionRefused

MAGIC = b"DGSF/S\r\n"
LENGTH = struct.Struct("<H")
LIFE_SECONDS = 60.0  # from the gateway's answer to the knock at the door
MAX_TICKET_BYTES = 4096
_SIGNATURE_BYTES = 32


class Claims(msgspec.Struct, array_like=True, frozen=True):
    """What a session may have."""

    session: bytes  # its id, a uuid
    tenant_id: int
    gpu: tuple[str, ...]
    memory_bytes: int
    start_seconds: float  # how long it may wait for a device
    expires: float  # Unix seconds
    resumes: bytes = b""  # the id of a session that was lost with its proxy and is repeated by this one


def issue(claims: Claims, secret: bytes) -> bytes:
    """A ticket: the claims behind their signature."""
    body = msgspec.msgpack.encode(claims)
    return _sign(secret, body) + body


def accept(ticket: bytes, secret: bytes, now: float) -> Claims:
    """The claims of a ticket of ours that is still good; SessionRefused for any other."""
    signature, body = ticket[:_SIGNATURE_BYTES], ticket[_SIGNATURE_BYTES:]
    if not hmac.compare_digest(signature, _sign(secret, body)):
        raise SessionRefused("this is not a ticket of this platform")
    claims: Claims = _read(body)
    if now > claims.expires:
        raise SessionRefused(f"the ticket was good for {LIFE_SECONDS:g} s and has expired; ask for a new one")
    return claims


def session_key(session: bytes, secret: bytes) -> bytes:
    """The key of one session, for its handshake."""
    return hmac.new(secret, b"dgsf session key " + session, hashlib.sha256).digest()


def knock(ticket: bytes) -> bytes:
    """A guest's first bytes at the door."""
    return MAGIC + LENGTH.pack(len(ticket)) + ticket


def _sign(secret: bytes, body: bytes) -> bytes:
    return hmac.new(secret, b"dgsf session ticket " + body, hashlib.sha256).digest()


def _read(body: bytes) -> Any:
    try:
        return msgspec.msgpack.decode(body, type=Claims)
    except msgspec.DecodeError as error:
        raise SessionRefused(f"the ticket is of another version of the platform: {error}") from None
