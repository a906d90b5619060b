"""What the end of an executor means for its session: can the guest go on elsewhere? Pure."""

from __future__ import annotations

import signal

from dgsf.errors import DgsfError, ExecutorCrashed, OutOfMemory, SessionLost, SessionRefused
from dgsf.wire.messages import WorkerExit

EXIT_REFUSED = 76  # the executor's word for a guest that broke the protocol
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM)  # no operation of the guest's ends a process in this way


def loss_of(notice: WorkerExit | None, device: str) -> tuple[DgsfError, bool]:
    """The error, and whether a replay on another device makes sense."""
    if notice is None:
        return SessionLost(f"device {device} does not answer any more"), True
    if notice.cause == "killed":
        if notice.reason == "memory":
            return OutOfMemory("the session used more memory than it has; attach with more memory="), False
        return SessionLost(f"the executor on {device} was ended by the platform ({notice.reason})"), True
    if notice.exit_code == EXIT_REFUSED:
        return SessionRefused("the session was closed: its commands broke the protocol"), False
    crashed = notice.signal not in _FROM_OUTSIDE and (notice.signal or notice.exit_code)
    kind = ExecutorCrashed if crashed else SessionLost
    return kind(f"the executor on {device} ended by {_how(notice)}"), True


def _how(notice: WorkerExit) -> str:
    if not notice.signal:
        return f"itself with exit code {notice.exit_code}"
    try:
        return signal.Signals(notice.signal).name
    except ValueError:
        return f"signal {notice.signal}"
