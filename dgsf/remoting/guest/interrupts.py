"""Ctrl-C at a moment when it does no harm.

Python runs a signal's handler between two instructions of the main thread, and from within many of its C functions.
What a handler raises while a frame is half sent costs the session.  What it raises within torch's C++ may end the
process: torch reads a name there, Python looks for signals, and nobody expects an error.  So the handler only sends a
courier, a thread that looks where the program is.  At a good moment it has the error raised by the interpreter, which
does so between instructions alone; a C function that goes on after that is a wait, and interrupted as ever.
Nothing of this is on the way of a call.  Handlers that a program has set itself are left alone.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
import time
from _thread import start_new_thread
from contextlib import ExitStack
from dis import opname
from types import CodeType, FrameType
from typing import Any

from dgsf.remoting.guest.channel import rest
from dgsf.remoting.guest.failures import Engine
from dgsf.remoting.guest.session_stream import SessionStream

MOMENT_SECONDS = 0.0005  # after it, the courier looks again
PATIENCE_SECONDS = 2.0  # of the courier with a backward pass, which may wait in a hook
TURN_SECONDS = 0.2  # of the courier with a loop that calls nothing
WAIT_SECONDS = 0.02  # a C function that goes on for so long waits for something
INSIST_SECONDS = 0.2  # a second signal within it is the same key, told twice


class PutOff:
    """The handler of SIGINT, put off to a good moment; whoever presses again is heard at once."""

    def __init__(self) -> None:
        self._courier: _Courier | None = None  # that is under way

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        courier = self._courier
        if courier is None and not is_waiting(frame):
            self._courier = courier = _Courier(self)
            start_new_thread(courier.run, ())  # `threading` has locks that the program may hold just now
            return None
        if courier is not None and not courier.gives_way(frame):
            return None
        self._courier = None
        return signal.default_int_handler(number, frame)

    def arrived(self, courier: _Courier) -> None:
        if self._courier is courier:
            self._courier = None

    def call_back(self) -> bool:
        """No courier will arrive any more; whether one was under way."""
        courier, self._courier = self._courier, None
        return courier is not None and courier.give_up()


class _Courier:
    """One Ctrl-C on its way to a good moment."""

    def __init__(self, sender: PutOff) -> None:
        self._sender = sender
        self._since = time.monotonic()
        self._arrived = False
        self._requested = False  # of the interpreter
        self._knocks = ""  # why it has signalled itself: the program waits, for the other side or in C

    def run(self) -> None:
        kind = ctypes.py_object(self._as_class())
        while not self._arrived and not self._deliver(kind):
            time.sleep(MOMENT_SECONDS)
        time.sleep(WAIT_SECONDS)
        if not self._arrived:
            self._knock("in C")

    def _deliver(self, kind: Any) -> bool:
        """If the moment is good.  So short a time no other thread runs: the program stays where it is."""
        frame = sys._current_frames().get(_main())
        if is_waiting(frame):
            self._knock("for the other side")
            return False
        if is_in(frame, _SESSION):
            return False
        waited = time.monotonic() - self._since
        if (is_in(frame, _PASS) and waited < PATIENCE_SECONDS) or (is_turning(frame) and waited < TURN_SECONDS):
            return False
        _let_interpreter_raise(kind)
        self._requested = True
        return True

    def _knock(self, why: str) -> None:
        self._knocks = why
        signal.pthread_kill(_main(), signal.SIGINT)

    def _as_class(self) -> type[BaseException]:
        """The interpreter raises a class, whose instance it makes when somebody catches it."""

        def seen(*_: Any) -> BaseException:
            self._arrived = True
            self._sender.arrived(self)
            return KeyboardInterrupt()

        return type("KeyboardInterrupt", (KeyboardInterrupt,), {"__new__": seen, "__module__": "builtins"})

    def gives_way(self, frame: FrameType | None) -> bool:
        """There is another signal, or its own: whether that is to be handled here and now."""
        knocks, self._knocks = self._knocks, ""
        if knocks == "for the other side" and not is_waiting(frame):
            return False  # not any more
        if not knocks and time.monotonic() - self._since < INSIST_SECONDS:
            return False
        self.give_up()
        return True

    def give_up(self) -> bool:
        """It will not arrive; False if it has."""
        if self._requested:
            _let_interpreter_raise(None)
        under_way, self._arrived = not self._arrived, True
        return under_way


def _codes(owner: type) -> frozenset[CodeType]:
    return frozenset(part.__code__ for part in vars(owner).values() if hasattr(part, "__code__"))


_SESSION = _codes(SessionStream) | _codes(PutOff) | _codes(_Courier)
_PASS = frozenset({Engine.run_backward.__code__})
_WAITS = rest.__code__


def is_in(frame: FrameType | None, codes: frozenset[CodeType]) -> bool:
    """Whether one of these functions was entered and not left."""
    while frame is not None:
        if frame.f_code in codes:
            return True
        frame = frame.f_back
    return False


def is_waiting(frame: FrameType | None) -> bool:
    """Whether the program waits for the other side, with nothing half done."""
    return frame is not None and frame.f_code is _WAITS


def is_turning(frame: FrameType | None) -> bool:
    """Whether a loop begins its next round: to Python 3.11 an error there comes before the loop, outside its `try`."""
    return frame is not None and "JUMP_BACKWARD" in opname[frame.f_code.co_code[frame.f_lasti]]


def _main() -> int:
    return threading.main_thread().ident or 0


def _let_interpreter_raise(kind: Any) -> None:
    """This class in the main thread, between two of its instructions; or what was asked for not any more."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(_main()), kind)


def put_off(stack: ExitStack) -> None:
    """Until the stack ends; only where nobody else handles SIGINT, and in the main thread, which alone can ask."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        ours = PutOff()
        signal.signal(signal.SIGINT, ours)
        stack.callback(_give_back, ours)


def _give_back(ours: PutOff) -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGINT) is ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if ours.call_back():
        signal.raise_signal(signal.SIGINT)
