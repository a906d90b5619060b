"""Request headers with a meaning of ours: ranges checked, defaults in one place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multidict import istr

from dgsf.errors import InvalidHeader, Unauthenticated
from dgsf.wire.messages import Codec

if TYPE_CHECKING:
    from collections.abc import Mapping

AUTHORIZATION = istr("Authorization")
CONTENT_TYPE = istr("Content-Type")
ACCEPT = istr("Accept")
REQUEST_ID = istr("X-Request-ID")
START_DEADLINE = istr("X-Dgsf-Start-Deadline")
TIMEOUT = istr("X-Dgsf-Timeout")
PRIORITY = istr("X-Dgsf-Priority")
IDEMPOTENCY_KEY = istr("Idempotency-Key")

JSON_TYPE = "application/json"
PICKLE_TYPE = "application/vnd.dgsf.pickle"
FORM_TYPE = "application/x-www-form-urlencoded"
FUNCTION_TYPE = "application/vnd.dgsf.function"
MAX_SECONDS = 86_400
LOWEST_PRIORITY, HIGHEST_PRIORITY = -10, 10
_SECONDS = re.compile(r"\d{1,5}(\.\d{1,9})?")
_WHOLE = re.compile(r"[+-]?\d{1,2}")
_VISIBLE = re.compile(r"[\x21-\x7e]{1,255}")
_PRINTABLE = re.compile(r"[\x20-\x7e]{1,128}")


@dataclass(slots=True)
class CallHeaders:
    """What the headers of an invoke ask for; times in microseconds, 0: not given."""

    start_us: int = 0
    timeout_us: int = 0
    priority: int = 0
    key: str = ""


def bearer(headers: Mapping[str, str]) -> str:
    """The API key of a request."""
    given = headers.get(AUTHORIZATION)
    if given is None:
        raise Unauthenticated
    if given.startswith("Bearer "):
        return given[7:].strip()
    scheme, _, key = given.partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthenticated
    return key.strip()


def call_headers(headers: Mapping[str, str]) -> CallHeaders:
    found = CallHeaders()
    if (text := headers.get(START_DEADLINE)) is not None:
        found.start_us = _microseconds(START_DEADLINE, text)
    if (text := headers.get(TIMEOUT)) is not None:
        found.timeout_us = _microseconds(TIMEOUT, text)
    if (text := headers.get(PRIORITY)) is not None:
        found.priority = _priority(text)
    if (text := headers.get(IDEMPOTENCY_KEY)) is not None:
        found.key = _key(text)
    return found


def argument_codec(headers: Mapping[str, str]) -> Codec:
    """How the body of an invoke is to be read."""
    given = headers.get(CONTENT_TYPE)
    if given is None or given == JSON_TYPE:
        return Codec.json
    kind = given.partition(";")[0].strip().lower()
    if kind in (JSON_TYPE, ""):
        return Codec.json
    if kind == FORM_TYPE:  # what curl says of any -d: nobody means it, and the function would get raw bytes
        raise InvalidHeader(
            f"{CONTENT_TYPE}: {FORM_TYPE} is not taken; send -H 'Content-Type: application/json' for JSON "
            "arguments, or application/octet-stream for raw bytes",
            header=str(CONTENT_TYPE),
        )
    return Codec.pickle if kind == PICKLE_TYPE else Codec.raw


def reply_codec(headers: Mapping[str, str]) -> Codec:
    """How the caller wants its result."""
    accept = headers.get(ACCEPT)
    return Codec.pickle if accept is not None and PICKLE_TYPE in accept.lower() else Codec.json


def request_id(headers: Mapping[str, str]) -> bytes:
    """The header line that echoes X-Request-ID; nothing for one that cannot be echoed."""
    given = headers.get(REQUEST_ID)
    if given is None or not _PRINTABLE.fullmatch(given):
        return b""
    return b"X-Request-ID: %b\r\n" % given.encode("ascii")


def _microseconds(name: str, text: str) -> int:
    if _SECONDS.fullmatch(text):
        microseconds = round(float(text) * 1_000_000)
        if 1000 <= microseconds <= MAX_SECONDS * 1_000_000:
            return microseconds
    raise InvalidHeader(
        f"{name}: {_short(text)} is not a number of seconds from 0.001 to {MAX_SECONDS}, such as 2.5", header=name
    )


def _priority(text: str) -> int:
    if _WHOLE.fullmatch(text) and LOWEST_PRIORITY <= int(text) <= HIGHEST_PRIORITY:
        return int(text)
    raise InvalidHeader(
        f"{PRIORITY}: {_short(text)} is not a whole number from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}",
        header=str(PRIORITY),
    )


def _key(text: str) -> str:
    if _VISIBLE.fullmatch(text):
        return text
    raise InvalidHeader(
        f"{IDEMPOTENCY_KEY}: expected 1 to 255 visible ASCII characters without spaces", header=str(IDEMPOTENCY_KEY)
    )


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")
