"""The guard that torch asks for our device, several times for every node of an autograd graph.

It is asked where nothing may fail: an exception out of it ends the process.  What a hook raised is still pending while
the engine unwinds, and makes any call from C fail, so the guard takes it out of the way and keeps it, for `failures` to
raise once the engine has returned.
"""

from __future__ import annotations

import threading
from dis import opmap
from typing import Any

import torch

_kept = threading.local()  # `error`: what was pending; a backward pass runs in the thread that called for it
_PROBE = [0]
_AFTER_AWAIT = 3  # an argument of RESUME
_TYPE = torch._C._autograd.DeviceType.PrivateUse1


def _undisturbed(function: Any) -> None:
    """Nothing else runs where this function does: no debugger, which stops at lines, and no handler of a signal.

    What they raise would end the process.  Python looks for signals at the first instruction of a function, but not
    where one goes on after an `await`; a Ctrl-C is met a moment later, by the program.
    """
    code = function.__code__
    full, rest = divmod(len(code.co_code) // 2, 8)
    no_lines = b"\xff" * full + (bytes((0xF7 + rest,)) if rest else b"")
    assert code.co_code[0] == opmap["RESUME"]
    function.__code__ = code.replace(
        co_code=bytes((opmap["RESUME"], _AFTER_AWAIT)) + code.co_code[2:], co_linetable=no_lines
    )


class Guard(torch._C._acc.DeviceGuard):
    """Says what device it is for; torch's own C++ does the rest, which is nothing."""

    def type_(self) -> Any:
        try:
            _PROBE[-1]  # at an index of -1 Python asks itself whether there is an error, and raises the pending one
        except BaseException as error:
            _kept.error = error
        return _TYPE

    _undisturbed(type_)


def take() -> BaseException | None:
    """The kept error of this thread, with the frames that it had; it is kept no longer."""
    error: BaseException | None = _kept.__dict__.pop("error", None)
    if error is not None:
        trace = error.__traceback__
        if trace is not None and trace.tb_frame.f_code is Guard.type_.__code__:
            error.__traceback__ = trace.tb_next
    return error
