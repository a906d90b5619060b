"""Errors inside a backward pass, brought out alive.

A Python exception must not pass through torch's autograd engine while it works for this device: the engine puts a
device guard back on the way out, asks our Python guard for its type with the exception still set, and ends the
process.  So the exception is kept, the engine is given an answer that it refuses by an error of its own, and the
kept one is raised in its place as soon as the engine has returned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from typing import Any

import torch

from dgsf.errors import DgsfError, OutOfMemory, RemoteOpError, by_code
from dgsf.remoting.guest.bound import bound

_kept = threading.local()  # `error`: the first of a backward pass, which runs in the thread that called for it
_in_backward = torch._C._current_graph_task_id


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


class _Refused:
    """No tensor, so that the engine stops."""


REFUSED = _Refused()


def to_raise(error: BaseException) -> BaseException | None:
    """The error as its user should see it; None in a backward pass: it is kept, and the engine is to be refused."""
    if isinstance(error, _USERS):
        error.__cause__ = error.__context__ = None
        error.__suppress_context__ = False  # raised outside of our handlers, it gets the program's own context
        error = error.with_traceback(None)
    if _in_backward() < 0:
        return error
    _kept.__dict__.setdefault("error", error)
    return None


def refuse_in_backward(error: Exception) -> tuple[None]:
    """What a hook says instead of a gradient that must not be used: there is none, and why, once the pass is over."""
    if bound.stream is None:
        raise error  # nobody would raise it then, and no guard of ours is asked
    _kept.__dict__.setdefault("error", error)
    return (None,)


def guarded(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel whose errors show one frame of ours, and do not end a backward pass by ending the process."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return kernel(*args, **kwargs)
        except BaseException as error:
            failure = to_raise(error)
        if failure is None:
            return REFUSED
        try:
            raise failure
        finally:
            del failure  # a frame that holds its own error would keep the call's tensors

    return call


def install(stack: ExitStack) -> None:
    """Raise kept errors where a backward pass returns, and let it run where it was called, in any thread.

    Torch's own threads are as many as there were devices at its first backward pass, which may have been before ours.
    """
    graph = import_module("torch.autograd.graph")
    original = graph._engine_run_backward

    def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
        try:
            if not torch.autograd.is_multithreading_enabled():
                found = original(*args, **kwargs)
            else:
                with torch.autograd.set_multithreading_enabled(False):
                    found = original(*args, **kwargs)
        except RuntimeError:
            kept = _kept.__dict__.pop("error", None)
            if kept is not None:
                raise kept from None
            raise
        kept = _kept.__dict__.pop("error", None)
        if kept is not None:  # of a hook, for which the pass went on
            raise kept
        return found

    for module in (graph, torch.autograd):
        setattr(module, "_engine_run_backward", _engine_run_backward)  # noqa: B010 - mypy knows no such name
        stack.callback(setattr, module, "_engine_run_backward", original)
