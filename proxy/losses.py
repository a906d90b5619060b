"""What the end of a worker means for the call that was running in it. Pure."""

from __future__ import annotations

import signal

from dgsf.errors import DgsfError, FunctionCancelled, FunctionTimeout, OutcomeUnknown, OutOfMemory, WorkerCrashed
from dgsf.wire.messages import WorkerExit

_BY_REASON: dict[str, type[DgsfError]] = {"timeout": FunctionTimeout, "cancel": FunctionCancelled}


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
