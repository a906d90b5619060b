"""Identifiers: time-ordered call ids that carry their proxy's number, and API keys.

A call id is a UUID version 7: 48 bits of milliseconds, then a counter that keeps ids of one process
in order, then 16 bits that name the proxy holding the call, then 46 random bits.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import random
import secrets
import time
from dataclasses import dataclass
from uuid import UUID

MAX_PROXY_NUMBER = 0xFFFF
_VERSION_7 = 0x7 << 76
_VARIANT = 0b10 << 62


class CallIds:
    """Mints call ids; strictly increasing within one process."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random(os.urandom(16))  # noqa: S311 - ids must be unique, not secret
        self._last_ms = 0
        self._counter = 0

    def mint(self, proxy_number: int = 0, now_ms: int | None = None) -> UUID:
        ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        if ms > self._last_ms:
            self._last_ms = ms
            self._counter = 0
        else:
            self._counter += 1
            if self._counter > 0xFFF:
                self._last_ms += 1
                self._counter = 0
        low = _VARIANT | (proxy_number & MAX_PROXY_NUMBER) << 46 | self._rng.getrandbits(46)
        return UUID(int=self._last_ms << 80 | _VERSION_7 | self._counter << 64 | low)


def proxy_number(call_id: UUID) -> int:
    """The number of the proxy that holds this call."""
    return call_id.int >> 46 & MAX_PROXY_NUMBER


def minted_at_ms(call_id: UUID) -> int:
    """When the id was made, in Unix milliseconds."""
    return call_id.int >> 80


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A new key; the secret is shown once and only its sha256 is kept."""

    key_id: str
    text: str

    @property
    def digest(self) -> bytes:
        return key_digest(self.text)

    def __repr__(self) -> str:
        return f"ApiKey({self.key_id}, ***)"


def new_api_key() -> ApiKey:
    key_id = secrets.token_hex(6)
    return ApiKey(key_id, f"dgsf_{key_id}_{secrets.token_urlsafe(32)}")


def key_id_of(text: str) -> str | None:
    """The public part of a key, or None if it does not look like one."""
    parts = text.split("_", 2)
    if len(parts) != 3 or parts[0] != "dgsf" or not parts[1] or not parts[2]:
        return None
    return parts[1]


def key_digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def same_digest(left: bytes, right: bytes) -> bool:
    return hmac.compare_digest(left, right)
