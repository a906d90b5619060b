"""What the end of an executor means for its session: can the guest go on elsewhere? Pure."""

from __future__ import annotations

import signal
from typing import NamedTuple

from dgsf.errors import DgsfError, ExecutorCrashed, OutOfMemory, SessionLost, SessionRefused
from dgsf.wire.messages import WorkerExit

EXIT_REFUSED = 76  # the executor's word for a guest that broke the protocol
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM)  # no operation of the guest's ends a process in this way


class Loss(NamedTuple):
    """Why the device is gone, whether a replay on another makes sense, and whether the guest itself is the cause."""

    error: DgsfError
    resumable: bool = True
    by_guest: bool = False


def loss_of(notice: WorkerExit | None, device: str) -> Loss:
    """What its end means; a crash is the guest's doing, as a crash of a function is."""
    if notice is None:
        return Loss(SessionLost(f"device {device} does not answer any more"))
    if notice.cause == "killed":
        if notice.reason == "memory":
            return Loss(
                OutOfMemory("the session used more memory than it has; attach with more memory="), resumable=False
            )
        return Loss(SessionLost(f"the executor on {device} was ended by the platform ({notice.reason})"))
    if notice.exit_code == EXIT_REFUSED:
        return Loss(SessionRefused("the session was closed: its commands broke the protocol"), resumable=False)
    crashed = notice.signal not in _FROM_OUTSIDE and bool(notice.signal or notice.exit_code)
    kind = ExecutorCrashed if crashed else SessionLost
    return Loss(kind(f"the executor on {device} ended by {_how(notice)}"), by_guest=crashed)


def _how(notice: WorkerExit) -> str:
    if not notice.signal:
        return f"itself with exit code {notice.exit_code}"
    try:
        return signal.Signals(notice.signal).name
    except ValueError:
        return f"signal {notice.signal}"
