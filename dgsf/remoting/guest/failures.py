"""Errors as the program should see them: of the type that it waits for, at its own line, also out of a backward pass.

A Python exception that passes through torch's autograd engine loses its way at our device guard, which keeps it (see
`guard`).  The engine then fails without a word, and the kept exception is raised in that place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dgsf.errors import DgsfError, OutOfMemory, RemoteOpError, by_code
from dgsf.remoting.guest.guard import take

# Errors about what the user asked for, and Ctrl-C: the way through the guest is of no interest to them.
_USERS = (DgsfError, RuntimeError, IndexError, TypeError, ValueError, KeyboardInterrupt)


class _Torchs:
    """An error of ours that is torch's own, too, for programs that wait for that."""

    def __reduce__(self) -> tuple[Any, ...]:
        reduced: Any = super().__reduce__()
        rebuild, (kind, *rest) = reduced
        return rebuild, (kind.__mro__[2], *rest)  # ours alone: whoever reads it may have no torch


class DeviceOutOfMemory(_Torchs, OutOfMemory, torch.OutOfMemoryError):
    """The remote device has not enough memory."""


class RemoteIndexError(_Torchs, RemoteOpError, IndexError):
    """An index is out of range on the remote device."""


class RemoteTypeError(_Torchs, RemoteOpError, TypeError):
    """The remote device refuses a type."""


class RemoteValueError(_Torchs, RemoteOpError, ValueError):
    """The remote device refuses a value."""


class RemoteNotImplementedError(_Torchs, RemoteOpError, NotImplementedError):
    """The remote device cannot do that."""


class RemoteLinAlgError(_Torchs, RemoteOpError, torch.linalg.LinAlgError):
    """Linear algebra failed on the remote device."""


PUBLIC = (
    DeviceOutOfMemory,
    RemoteIndexError,
    RemoteTypeError,
    RemoteValueError,
    RemoteNotImplementedError,
    RemoteLinAlgError,
)
for _kind in PUBLIC:
    _kind.__module__ = "dgsf"  # where programs find it, and what a traceback shows

_BY_NAME: dict[str, type[DgsfError]] = {
    "RuntimeError": RemoteOpError,
    "IndexError": RemoteIndexError,
    "TypeError": RemoteTypeError,
    "ValueError": RemoteValueError,
    "NotImplementedError": RemoteNotImplementedError,
    "_LinAlgError": RemoteLinAlgError,
    "LinAlgError": RemoteLinAlgError,
}


def kind_of(code: str, message: str) -> tuple[type[DgsfError], str]:
    """The class for what the executor told, and its text without the name of the type that the class is."""
    if code == OutOfMemory.code:
        return DeviceOutOfMemory, message
    name, _, text = message.partition(": ")
    if code == RemoteOpError.code and name in _BY_NAME:
        return _BY_NAME[name], text
    return by_code(code), message


def to_raise(error: BaseException) -> BaseException:
    """The error as its user should see it."""
    if isinstance(error, _USERS):
        error.__cause__ = error.__context__ = None
        error.__suppress_context__ = False  # raised outside of our handlers, it gets the program's own context
        error = error.with_traceback(None)
    return error


def guarded(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel whose errors show one frame of ours."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return kernel(*args, **kwargs)
        except BaseException as error:
            failure = to_raise(error)
        try:
            raise failure
        finally:
            del failure  # a frame that holds its own error would keep the call's tensors

    return call


class Engine(torch._C._ImperativeEngine):
    """Torch's autograd engine, which every way into a backward pass asks; it raises kept errors where it returns.

    A pass runs where it was called, in any thread: torch's own are as many as there were devices at its first one,
    which may have been before ours.
    """

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        take()  # nobody's: of a pass that was not begun here
        try:
            if not torch.autograd.is_multithreading_enabled():
                return super().run_backward(*args, **kwargs)
            with torch.autograd.set_multithreading_enabled(False):
                return super().run_backward(*args, **kwargs)
        except BaseException:
            failure = take()
            if failure is None:
                raise
        context = failure.__context__
        try:
            raise failure
        finally:
            failure.__context__ = context  # as it was raised, not as it is here
            del failure, context


def install() -> None:
    """Give torch this engine. It stays after a session: graphs of remote tensors may, too."""
    torch.autograd.Variable._execution_engine = Engine()
