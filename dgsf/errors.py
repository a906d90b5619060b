"""The one table of what can go wrong, as a tree of exceptions.

Every class carries a stable `code`, the HTTP `status` it becomes, whether a caller may safely
try again (`retryable`) and whether the device time used is charged (`billable`).  The message
defaults to the docstring.  Instances survive pickling.  The gateway prints this table in its
OpenAPI document; the SDK raises the same classes from a problem+json answer.

    DgsfError
    ├── RequestError              the request itself is wrong (4xx)
    ├── OverloadError             full now, come back later (429)
    ├── PlatformError             the platform cannot now (503)
    │   └── OutcomeUnknown        it may or may not have run
    ├── FunctionFailure           the function's own doing (billed)
    └── UsageError                a local mistake: settings, command line, SDK
"""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar


class DgsfError(Exception):
    """Something went wrong in the platform."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    billable: ClassVar[bool] = False

    def __init__(self, message: str = "", **details: Any) -> None:
        self.message = message or _first_line(type(self))
        self.details = details
        super().__init__(self.message)
        if "retryable" in details:  # decided per call, over the class's own
            self.__dict__["retryable"] = bool(details["retryable"])

    @property
    def call_id(self) -> str | None:
        """The call that this is about, where there is one."""
        found = self.details.get("call_id")
        return None if found is None else str(found)

    def __reduce__(self) -> tuple[Any, ...]:
        made = (_rebuild, (type(self), self.message, self.details))
        notes = getattr(self, "__notes__", None)
        return made if notes is None else (*made, {"__notes__": notes})

    def __str__(self) -> str:
        return self.message


def _first_line(kind: type[DgsfError]) -> str:
    return (kind.__doc__ or kind.__name__).strip().splitlines()[0]


def _rebuild(kind: type[DgsfError], message: str, details: dict[str, Any]) -> DgsfError:
    return kind(message, **details)


# --- the request is wrong ---------------------------------------------------------------------
class RequestError(DgsfError):
    """The request cannot be served as it is."""

    code = "bad_request"
    status = 400


class InvalidJson(RequestError):
    """The body is not valid JSON."""

    code = "invalid_json"


class InvalidArguments(RequestError):
    """The arguments do not fit the function's signature."""

    code = "invalid_arguments"


class InvalidHeader(RequestError):
    """A header has a value outside its range."""

    code = "invalid_header"


class Unauthenticated(RequestError):
    """No valid API key was given; send 'Authorization: Bearer dgsf_...'."""

    code = "unauthenticated"
    status = 401


class Forbidden(RequestError):
    """This API key's role does not allow that."""

    code = "forbidden"
    status = 403


class NotFound(RequestError):
    """There is nothing of that name here."""

    code = "not_found"
    status = 404


class MethodNotAllowed(RequestError):
    """This address does not take that method."""

    code = "method_not_allowed"
    status = 405


class Conflict(RequestError):
    """That is not possible in the present state."""

    code = "conflict"
    status = 409


class BodyTooLarge(RequestError):
    """The request body is over the limit."""

    code = "body_too_large"
    status = 413


class Unprocessable(RequestError):
    """The request is well formed but cannot be carried out."""

    code = "unprocessable"
    status = 422


class UnknownOption(Unprocessable):
    """The function has an option that this platform does not know."""

    code = "unknown_option"


class InvalidOption(Unprocessable):
    """An option of the function has a value outside its range."""

    code = "invalid_option"


class InvalidName(Unprocessable):
    """That cannot be the name of a function."""

    code = "invalid_name"


class PythonMismatch(Unprocessable):
    """The function was packed by another Python minor version than the workers run."""

    code = "python_mismatch"


class DoesNotFit(Unprocessable):
    """No device of the pool can ever hold this function."""

    code = "does_not_fit"


class IdempotencyMismatch(Unprocessable):
    """This Idempotency-Key was used before with another request."""

    code = "idempotency_mismatch"


# --- too much ---------------------------------------------------------------------------------
class OverloadError(DgsfError):
    """Too much work at once; try again after the given time."""

    code = "overloaded"
    status = 429
    retryable = True


class QueueFull(OverloadError):
    """The function's queue is full; try again after the given time."""

    code = "queue_full"


# --- the platform cannot ----------------------------------------------------------------------
class PlatformError(DgsfError):
    """The platform cannot do this now; nothing was charged."""

    code = "unavailable"
    status = 503
    retryable = True


class StoreUnavailable(PlatformError):
    """The database does not answer; nothing was charged, try again."""

    code = "store_unavailable"


class NoDevice(PlatformError):
    """No healthy device can take this function now."""

    code = "no_device"


class StartDeadlineMissed(PlatformError):
    """The call, or the device that it needs, could not be had before its start deadline; nothing was charged."""

    code = "start_deadline_missed"


class ShuttingDown(PlatformError):
    """The platform is stopping; the call did not run."""

    code = "shutting_down"


class OutcomeUnknown(PlatformError):
    """The part that ran this call was lost: it may or may not have run; nothing was charged."""

    code = "outcome_unknown"
    retryable = False  # unless the call is keyed or its function allows retries: decided per call


class ConnectionLost(PlatformError):
    """The connection to the other process ended."""

    code = "connection_lost"


class ProtocolError(PlatformError):
    """The other side broke the wire protocol."""

    code = "protocol_error"


class LeaseLost(PlatformError):
    """The lease on the device ended before the work did."""

    code = "lease_lost"


# --- the function's own doing -----------------------------------------------------------------
class FunctionFailure(DgsfError):
    """The function did not end well; its device time is charged."""

    code = "function_failure"
    status = 500
    billable = True


class FunctionError(FunctionFailure):
    """The function raised an exception."""

    code = "function_error"


class RemoteError(FunctionError):
    """The function raised an exception whose type does not exist in this program."""


class ResultNotJson(FunctionFailure):
    """The function's result cannot be written as JSON."""

    code = "result_not_json"


class ResultNotSendable(FunctionFailure):
    """The function's result cannot be pickled."""

    code = "result_not_sendable"


class ResultTooLarge(FunctionFailure):
    """The function's result is over the limit."""

    code = "result_too_large"


class FunctionTimeout(FunctionFailure):
    """The function ran longer than its timeout and was stopped."""

    code = "timed_out"
    status = 504


class FunctionCancelled(FunctionFailure):
    """The call was cancelled."""

    code = "cancelled"
    status = 499


class WorkerCrashed(FunctionFailure):
    """The function ended its own process."""

    code = "worker_crashed"


class OutOfMemory(FunctionFailure):
    """The function asked for more memory than it has."""

    code = "out_of_memory"


class FunctionLoadError(FunctionFailure):
    """The function could not be loaded in the worker; it did not run and is not charged."""

    code = "function_load_error"
    billable = False


# --- a session with a remote device -------------------------------------------------------------
class SessionLost(PlatformError):
    """The remote device of this session was lost and its state cannot be brought back."""

    code = "session_lost"


class ExecutorCrashed(SessionLost):
    """The process that executed the commands of this session crashed."""

    code = "executor_crashed"


class SessionRefused(RequestError):
    """The session broke a rule of the device and was closed."""

    code = "session_refused"


class OpNotAllowed(RequestError):
    """This operation is not available on a remote device."""

    code = "op_not_allowed"


class RemoteOpError(FunctionFailure, RuntimeError):  # torch code catches RuntimeError
    """An operation failed on the remote device."""

    code = "remote_op_failed"


class OpCrashed(RemoteOpError):
    """An operation crashed the process that executed it, on two devices."""

    code = "op_crashed"


# --- local mistakes ---------------------------------------------------------------------------
class UsageError(DgsfError):
    """This cannot be done the way it was asked."""

    code = "usage"
    status = 400


class NotAttached(UsageError, RuntimeError):  # torch code catches RuntimeError
    """This process has no remote device."""

    code = "not_attached"


class ConfigError(UsageError):
    """A setting is wrong."""

    code = "config"


class TraceError(UsageError):
    """A trace file cannot be read as it is."""

    code = "trace"


class StartError(UsageError):
    """A part of the platform did not start."""

    code = "start_failed"


@cache
def all_errors() -> dict[str, type[DgsfError]]:
    """Every error class by its code."""
    found: dict[str, type[DgsfError]] = {}
    waiting: list[type[DgsfError]] = [DgsfError]
    while waiting:
        kind = waiting.pop()
        found.setdefault(kind.code, kind)
        waiting.extend(kind.__subclasses__())
    return found


def by_code(code: str) -> type[DgsfError]:
    """The class of a code; DgsfError itself for one that this version does not know."""
    return all_errors().get(code, DgsfError)
