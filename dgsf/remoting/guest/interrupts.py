"""Ctrl-C, and other handlers that raise, at moments when they do no harm.

Python runs a signal's handler between two instructions of the main thread, and from within many of its C functions.
What a handler raises while a frame is half sent costs the session.  What it raises within torch's C++ may end the
process: torch reads a name there, Python looks for signals, and nobody expects an error.  So the handler only sends a
courier, a thread that looks where the program is.  At a good moment it has the error raised by the interpreter, which
does so between instructions alone; a C function that goes on after that is a wait, and interrupted as ever.
Nothing of this is on the way of a call.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable
from contextlib import ExitStack
from types import CodeType, FrameType
from typing import Any

from dgsf.remoting.guest.channel import rest
from dgsf.remoting.guest.failures import Engine
from dgsf.remoting.guest.session_stream import SessionStream

Handler = Callable[[int, FrameType | None], Any]
MOMENT_SECONDS = 0.0005  # after it, the courier looks again
PATIENCE_SECONDS = 2.0  # of the courier; an upload over a slow way may take longer, and is cut
WAIT_SECONDS = 0.02  # a C function that goes on for so long waits for something


class PutOff:
    """A handler, put off to a good moment; a second signal in the meantime insists, and is handled at once."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self._courier: _Courier | None = None  # that is under way

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        courier = self._courier
        if courier is not None:
            if courier.knocked() and not is_waiting(frame):
                return None  # not any more
            self._courier = None
            return courier.overtaken(frame)
        if is_waiting(frame):
            return self.handler(number, frame)
        self._courier = _Courier(self, number)
        start_new_thread(self._courier.run, ())  # `threading` has locks that the program may hold just now
        return None

    def arrived(self, courier: _Courier) -> None:
        if self._courier is courier:
            self._courier = None


class _Courier:
    """One signal on its way to a good moment."""

    def __init__(self, sender: PutOff, number: int) -> None:
        self._sender = sender
        self._number = number
        self._until = time.monotonic() + PATIENCE_SECONDS
        self._arrived = False
        self._knocks = False
        self._error: BaseException | None = None  # what the handler raised
        self._requested = False  # of the interpreter

    def run(self) -> None:
        try:
            self._sender.handler(self._number, None)
        except BaseException as error:
            self._error = error.with_traceback(None)
        else:
            self._arrive()  # it raises nothing
            return
        kind = ctypes.py_object(self._as_class(self._error))
        while not self._arrived and not self._deliver(kind):
            time.sleep(MOMENT_SECONDS)
        if self._requested:
            time.sleep(WAIT_SECONDS)
        if not self._arrived:
            signal.pthread_kill(_main(), self._number)  # the program waits in C

    def _deliver(self, kind: Any) -> bool:
        """If the moment is good.  So short a time no other thread runs: the program stays where it is."""
        frame = sys._current_frames().get(_main())
        if is_waiting(frame):
            self._knocks = True
            signal.pthread_kill(_main(), self._number)
            return False
        if is_delicate(frame) and time.monotonic() < self._until:
            return False
        _let_interpreter_raise(kind)
        self._requested = True
        return True

    def _as_class(self, error: BaseException) -> type[BaseException]:
        """The interpreter raises a class, whose instance it makes when somebody catches it: this very error."""

        def seen(*_: Any) -> BaseException:
            self._arrive()
            return error

        kind = type(error)
        return type(kind.__name__, (kind,), {"__new__": seen, "__module__": kind.__module__})

    def _arrive(self) -> None:
        self._arrived = True
        self._sender.arrived(self)

    def knocked(self) -> bool:
        """Whether the signal is this courier's own, who saw the program wait for the other side."""
        knocks, self._knocks = self._knocks, False
        return knocks

    def overtaken(self, frame: FrameType | None) -> Any:
        """By another signal, or its own when the program waits: handled here and now."""
        self._arrived = True
        if self._requested:
            _let_interpreter_raise(None)
        if self._error is None:  # it has not even begun
            return self._sender.handler(self._number, frame)
        raise self._error


def _codes(owner: type) -> frozenset[CodeType]:
    return frozenset(part.__code__ for part in vars(owner).values() if hasattr(part, "__code__"))


_DELICATE = _codes(SessionStream) | _codes(PutOff) | _codes(_Courier) | {Engine.run_backward.__code__}
_WAITS = rest.__code__


def is_delicate(frame: FrameType | None) -> bool:
    """Whether a session, or a backward pass, is in the middle of something."""
    while frame is not None:
        if frame.f_code in _DELICATE:
            return True
        frame = frame.f_back
    return False


def is_waiting(frame: FrameType | None) -> bool:
    """Whether the program waits for the other side, with nothing half done."""
    return frame is not None and frame.f_code is _WAITS


def _main() -> int:
    return threading.main_thread().ident or 0


def _let_interpreter_raise(kind: Any) -> None:
    """This class in the main thread, between two of its instructions; or what was asked for not any more."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(_main()), kind)


def put_off(number: int, stack: ExitStack) -> None:
    """Put off what handles this signal now, until the stack ends; only the main thread can ask for it."""
    handler = signal.getsignal(number)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        return
    ours = PutOff(handler)
    signal.signal(number, ours)
    stack.callback(_give_back, number, ours)


def _give_back(number: int, ours: PutOff) -> None:
    if threading.current_thread() is threading.main_thread() and signal.getsignal(number) is ours:
        signal.signal(number, ours.handler)
