"""What the end of a worker means for the call that was running in it. Pure."""

from __future__ import annotations

import signal

from dgsf.errors import (
    DgsfError,
    DoesNotFit,
    FunctionCancelled,
    FunctionError,
    FunctionTimeout,
    LeaseLost,
    NoDevice,
    OutcomeUnknown,
    OutOfMemory,
    OverloadError,
    ResultNotJson,
    ResultNotSendable,
    ResultTooLarge,
    SessionLost,
    ShuttingDown,
    StartDeadlineMissed,
    StoreUnavailable,
    WorkerCrashed,
)
from dgsf.wire.messages import Failure, WorkerExit
from proxy.sessions.owner import OpenSession

# The ends of a session that are not the function's doing.
_SESSION_FAULTS = (
    *(NoDevice, StartDeadlineMissed, DoesNotFit, OverloadError),
    *(StoreUnavailable, SessionLost, LeaseLost, ShuttingDown),
)
_BY_REASON: dict[str, type[DgsfError]] = {"timeout": FunctionTimeout, "cancel": FunctionCancelled}


# What a worker may say of a call. Everything else is the function's own invention, and an error of the function.
_LAWFUL = frozenset(
    kind.code
    for kind in (
        FunctionError,
        FunctionTimeout,
        FunctionCancelled,
        LeaseLost,
        OutOfMemory,
        ResultNotJson,
        ResultNotSendable,
        ResultTooLarge,
    )
)


def lawful(failure: Failure | None) -> Failure | None:
    """A worker's word on how a call ended, with a code that a function cannot choose to its advantage."""
    if failure is None or failure.code in _LAWFUL:
        return failure
    return Failure(FunctionError.code, failure.message, failure.details)


def verdict(failure: Failure | None, session: OpenSession | None) -> Failure | None:
    """How a call ended; what its session failed by is known here and not left to the worker to tell."""
    fault = session.failure if failure is not None and session is not None else None
    return Failure.of(fault) if isinstance(fault, _SESSION_FAULTS) else lawful(failure)


def with_its_time(failure: Failure, allowed_us: int, own_us: int) -> Failure:
    """A timeout says how long it was, and whether the function's options or the call set it."""
    if failure.code != FunctionTimeout.code:
        return failure
    limit = f"{allowed_us / 1e6:g} s"
    if allowed_us < own_us:
        text = f"the function ran longer than the {limit} that this call gave it (X-Dgsf-Timeout) and was stopped"
    else:
        text = f"the function ran longer than its timeout of {limit} and was stopped; raise timeout= in its options"
    return Failure(failure.code, text, failure.details)


def failure_of_exit(exit_notice: WorkerExit | None) -> DgsfError:
    """The error that the running call gets; OutcomeUnknown where it is not the function's own doing."""
    if exit_notice is None:
        return OutcomeUnknown("the device that ran this call was lost: it may or may not have run")
    if exit_notice.cause == "killed":
        if exit_notice.reason == "memory":
            return OutOfMemory("the function used more memory than it has and was ended; raise memory= in its options")
        kind = _BY_REASON.get(exit_notice.reason)
        return kind() if kind else OutcomeUnknown(f"the worker was ended by the platform ({exit_notice.reason})")
    if exit_notice.signal:
        return _crash(exit_notice.signal)
    return WorkerCrashed(
        f"the function ended its process with exit code {exit_notice.exit_code}; return or raise instead",
        exit_code=exit_notice.exit_code,
    )


def _crash(number: int) -> WorkerCrashed:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    hint = " (often: the kernel ran out of memory)" if number == signal.SIGKILL else ""
    return WorkerCrashed(f"the function's process was ended by {name}{hint}", signal=name)
