"""The guard that torch asks for our device, several times for every node of an autograd graph.

It is asked where nothing may fail: an exception out of it ends the process.  What a hook raised is still pending while
the engine unwinds, and makes any call from C fail, so the guard takes it out of the way and keeps it, for `failures` to
raise once the engine has returned.
"""

from __future__ import annotations

import threading
from typing import Any

import torch

_kept = threading.local()  # `error`: what was pending; a backward pass runs in the thread that called for it
_PROBE = [0]
_TYPE = torch._C._autograd.DeviceType.PrivateUse1


def _no_lines(units: int) -> bytes:
    """A table of lines that has none, for so many units of code."""
    full, rest = divmod(units, 8)
    return b"\xff" * full + (bytes((0xF7 + rest,)) if rest else b"")


class Guard(torch._C._acc.DeviceGuard):
    """Says what device it is for; torch's own C++ does the rest, which is nothing."""

    def type_(self) -> Any:
        try:
            _PROBE[-1]  # at an index of -1 Python asks itself whether there is an error, and raises the pending one
        except BaseException as error:
            _kept.error = error
        return _TYPE

    # Without lines there is nothing for a debugger to stop at: what it calls there would fail, too.
    type_.__code__ = type_.__code__.replace(co_linetable=_no_lines(len(type_.__code__.co_code) // 2))


def take() -> BaseException | None:
    """The kept error of this thread, with the frames that it had; it is kept no longer."""
    error: BaseException | None = _kept.__dict__.pop("error", None)
    if error is not None:
        trace = error.__traceback__
        if trace is not None and trace.tb_frame.f_code is Guard.type_.__code__:
            error.__traceback__ = trace.tb_next
    return error
