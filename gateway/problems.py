"""The one place where errors become problem+json.

Every error of dgsf.errors has a code, a status and whether trying again may help; this prints them.  An
exception that nobody expected becomes 500 `internal` with an incident id that is also in the log, and
never shows a traceback to a client.
"""

from __future__ import annotations

import logging
import math
import secrets
from typing import Any

import msgspec

from dgsf.errors import DgsfError, all_errors
from dgsf.wire.messages import Failure
from gateway.reply import PROBLEM, Reply

log = logging.getLogger(__name__)
RETRY_AFTER_SECONDS = 1
MAX_RETRY_AFTER = 3600
_ENCODER = msgspec.json.Encoder()
_BY_CODE = all_errors()
_OWN = frozenset({"type", "title", "status", "code", "detail", "retryable", "call_id"})


def title_of(kind: type[DgsfError]) -> str:
    return (kind.__doc__ or kind.__name__).strip().splitlines()[0]


def problem(error: DgsfError, *, call_id: str | None = None, extra: bytes = b"") -> Reply:
    """The answer that tells this error."""
    return _render(type(error), error.message, error.details, error.retryable, call_id or error.call_id, extra)


def problem_of_failure(failure: Failure, *, call_id: str, extra: bytes, keep_pickle: bool, retryable: bool) -> Reply:
    """The answer that tells how a call failed; `retryable`: running it again does no harm."""
    kind = _BY_CODE.get(failure.code, DgsfError)
    details = failure.details if keep_pickle else _without_pickle(failure.details)
    may = bool(details.get("retryable", kind.retryable)) or (retryable and kind.code == "outcome_unknown")
    return _render(kind, failure.message, details, may, call_id, extra, failure.code)


def unexpected(error: BaseException) -> Reply:
    """A mistake of ours: the client gets an id, the log gets everything."""
    incident = secrets.token_hex(8)
    log.error("unexpected_error", extra={"incident": incident}, exc_info=error)
    return problem(DgsfError(f"something went wrong inside the platform; incident {incident}", incident=incident))


def _render(
    kind: type[DgsfError],
    message: str,
    details: dict[str, Any],
    retryable: bool,
    call_id: str | None,
    extra: bytes,
    code: str = "",
) -> Reply:
    fields = {
        "type": f"urn:dgsf:error:{code or kind.code}",
        "title": title_of(kind),
        "status": kind.status,
        "code": code or kind.code,
        "detail": message,
        "retryable": retryable,
        "call_id": call_id,
    }
    fields.update((name, value) for name, value in details.items() if name not in _OWN)
    reply = Reply(kind.status, PROBLEM, _encode(fields), extra + _headers(kind.status, details))
    if kind.code == "body_too_large":
        reply.force_close()  # the rest of the body is not read
    return reply


def _encode(fields: dict[str, Any]) -> bytes:
    try:
        return _ENCODER.encode(fields)
    except (TypeError, ValueError, RecursionError):  # details that are no JSON: say what can be said
        return _ENCODER.encode({name: value for name, value in fields.items() if name in _OWN})


def _headers(status: int, details: dict[str, Any]) -> bytes:
    if status == 401:
        return b'WWW-Authenticate: Bearer realm="dgsf"\r\n'
    if status in (429, 503):
        return b"Retry-After: %d\r\n" % _retry_after(details.get("retry_after"))
    if status == 405:
        return b"Allow: %b\r\n" % str(details.get("allow", "")).encode("ascii", "replace")
    return b""


def _retry_after(given: object) -> int:
    if not isinstance(given, int | float) or not math.isfinite(given):
        return RETRY_AFTER_SECONDS
    return min(max(math.ceil(given), 1), MAX_RETRY_AFTER)


def _without_pickle(details: dict[str, Any]) -> dict[str, Any]:
    error = details.get("error")
    if not isinstance(error, dict) or "pickle" not in error:
        return details
    return {**details, "error": {name: value for name, value in error.items() if name != "pickle"}}
