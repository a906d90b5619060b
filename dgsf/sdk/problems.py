"""From an answer to an exception: problem+json becomes the class of dgsf.errors with the same code.

An answer that is no problem+json (a load balancer's page, another server's) still becomes a clear error.
"""

from __future__ import annotations

import email.utils
import time
from typing import Any

import msgspec

from dgsf.errors import DgsfError, OverloadError, PlatformError, RequestError, Unauthenticated, by_code
from dgsf.sdk.plan import Reply

_BAD_KEY = (
    "the platform does not know this API key, or it was revoked; give another by DGSF_API_KEY, Client(api_key=...) or "
    "--api-key on the command line. With none given it is the one in client.json: if that was revoked, stop 'dgsf up' "
    "and start it again, which writes a new one"
)
_OWN_FIELDS = ("type", "title", "status", "code", "detail")


def problem_of(reply: Reply) -> dict[str, Any]:
    """The problem that this answer tells, as a dict; always with code, detail and status."""
    try:
        problem = msgspec.json.decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        problem = None
    if not isinstance(problem, dict) or not isinstance(problem.get("code"), str):
        start = reply.body[:200].decode("utf-8", "replace").strip()
        return {"code": "", "status": reply.status, "detail": f"the answer was HTTP {reply.status}: {start}"}
    problem.setdefault("status", reply.status)
    if "x-call-id" in reply.headers:
        problem.setdefault("call_id", reply.headers["x-call-id"])
    return problem


def error_of(problem: dict[str, Any]) -> DgsfError:
    """The exception of this problem, with `call_id` and `retryable` as told."""
    kind = by_code(problem["code"]) if problem["code"] else _by_status(int(problem["status"]))
    if kind is DgsfError and problem["code"] != DgsfError.code:
        kind = _by_status(int(problem["status"]))  # a code that is newer than this SDK
    details = {name: value for name, value in problem.items() if name not in _OWN_FIELDS}
    if kind is Unauthenticated:
        return kind(_BAD_KEY, **details)
    return kind(str(problem.get("detail") or problem.get("title") or ""), **details)


def with_output(error: BaseException, problem: dict[str, Any]) -> BaseException:
    """The same exception, with what the function had printed as a note, where the problem tells it."""
    printed = problem.get("output")
    if isinstance(printed, str) and printed.strip():
        error.add_note(f"it printed:\n{printed.rstrip()}")
    return error


def retry_after(reply: Reply) -> float | None:
    """The answer's Retry-After in seconds (it may also be a date), or None."""
    text = reply.headers.get("retry-after", "").strip()
    if not text:
        return None
    if text.isdecimal():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _by_status(status: int) -> type[DgsfError]:
    if status == 429:
        return OverloadError
    if status in (502, 503, 504):
        return PlatformError
    return RequestError if 400 <= status < 500 else DgsfError
