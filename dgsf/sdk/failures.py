"""A user's exception on its way home: described in the worker, rebuilt in the caller's program.

`describe` makes plain data of an exception, without the platform's own frames.  `rebuild` makes an exception
of that data: of the user's own type where it exists here, else of the type that travelled by value, else of
a new type of the same name that derives from RemoteError and the nearest known base; always with the remote
frames in its traceback.  An exception that would end a program (SystemExit and the like) comes back as an
ordinary one, because the function's end is not the caller's.
"""

from __future__ import annotations

import base64
import builtins
import importlib
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from dgsf.config import KIB
from dgsf.errors import DgsfError, FunctionError, RemoteError
from dgsf.sdk.pickles import dumps
from dgsf.sdk.traces import Frame, remote_traceback

MAX_PICKLE_BYTES = 256 * KIB
MAX_TEXT = 64 * KIB
MAX_FRAMES = 100
_PLATFORM_FOLDER = str(Path(__file__).resolve().parents[1])


class RemoteCause(Exception):
    """The exceptions that led to a remote one, as text."""

    def __str__(self) -> str:
        return "\n" + "".join(self.args)


# --- in the worker ----------------------------------------------------------------------------
def describe(exc: BaseException, skip_frames_of_platform: bool = True) -> dict[str, Any]:
    """The exception as JSON-able data; `pickle` is base64 text, or None if it cannot travel."""
    kind = type(exc)
    hidden = skip_frames_of_platform
    return {
        "type": _type_name(kind),
        "module": kind.__module__,
        "qualname": kind.__qualname__,
        "message": _clip(_text_of(exc)),
        "traceback": formatted(exc, hidden),
        "cause": _cause_text(exc, hidden),
        "frames": _frames(exc, hidden),
        "mro": [_type_name(base) for base in kind.__mro__ if base is not object],
        "pickle": _pickled(exc),
    }


def _type_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _text_of(exc: BaseException) -> str:
    try:
        return str(exc)
    except Exception:
        return f"<{type(exc).__qualname__} whose text cannot be made>"


def _clip(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[: MAX_TEXT // 2]}\n... {len(text) - MAX_TEXT} characters left out ...\n{text[-MAX_TEXT // 2 :]}"


def user_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the user's first frame on; None if the platform's are all there is."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_PLATFORM_FOLDER):
        trace = trace.tb_next
    return trace


def _is_our_mistake(exc: BaseException) -> bool:
    """Raised inside the platform and no error that it means to raise: then its frames are what helps."""
    trace = exc.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    inside = trace is not None and trace.tb_frame.f_code.co_filename.startswith(_PLATFORM_FOLDER)
    return inside and not isinstance(exc, DgsfError | RuntimeError | TypeError | ValueError | IndexError)


def _stack(exc: BaseException, hidden: bool) -> list[traceback.FrameSummary]:
    """Its frames; `hidden`: without the platform's, but for those that a mistake of the platform went through."""
    if not hidden:
        return list(traceback.extract_tb(exc.__traceback__))
    stack = traceback.extract_tb(user_frames(exc.__traceback__))
    if _is_our_mistake(exc):
        return list(stack)
    return [frame for frame in stack if not frame.filename.startswith(_PLATFORM_FOLDER)]


def formatted(exc: BaseException, hidden: bool = True) -> str:
    """As Python prints it, with its causes, each without the platform's frames."""
    shown = traceback.TracebackException.from_exception(exc)
    waiting: list[tuple[Any, Any]] = [(shown, exc)]
    while waiting:
        part, of = waiting.pop()
        part.stack = traceback.StackSummary.from_list(_stack(of, hidden))
        parts = [(part.__cause__, of.__cause__), (part.__context__, of.__context__)]
        parts += zip(part.exceptions or (), getattr(of, "exceptions", ()), strict=False)
        waiting += [(inner, its) for inner, its in parts if inner is not None and its is not None]
    return _clip("".join(shown.format()))


def _cause_text(exc: BaseException, hidden: bool) -> str | None:
    cause = exc.__cause__ or (None if exc.__suppress_context__ else exc.__context__)
    return None if cause is None else formatted(cause, hidden)


def _frames(exc: BaseException, hidden: bool) -> list[dict[str, Any]]:
    entries = _stack(exc, hidden)
    if len(entries) > MAX_FRAMES:  # endless recursion: both ends tell the story
        entries = entries[: MAX_FRAMES // 2] + entries[-MAX_FRAMES // 2 :]
    return [{"file": e.filename, "line": e.lineno or 0, "name": e.name, "code": e.line or ""} for e in entries]


def _pickled(exc: BaseException) -> str | None:
    import cloudpickle

    try:
        data: bytes | None = dumps(exc)
        cloudpickle.loads(data)
    except Exception:  # often an __init__ that wants other arguments than it gave to Exception
        data = _pickled_bare(exc)
    if data is None or len(data) > MAX_PICKLE_BYTES:
        return None
    return base64.b64encode(data).decode("ascii")


def _pickled_bare(exc: BaseException) -> bytes | None:
    import cloudpickle

    for held in (vars(exc), {}):
        try:
            data = dumps(_Bare(type(exc), exc.args, held))
            cloudpickle.loads(data)
        except Exception:  # noqa: S112 - the next try holds less
            continue
        return data
    return None


class _Bare:
    """Pickles as the exception itself, made without calling its __init__."""

    def __init__(self, kind: type[BaseException], args: tuple[Any, ...], held: dict[str, Any]) -> None:
        self.parts = (kind, args, held)

    def __reduce__(self) -> tuple[Any, ...]:
        return (make_bare, self.parts)


def make_bare(kind: type[BaseException], args: tuple[Any, ...], held: dict[str, Any]) -> BaseException:
    """An exception of this type with these args and attributes; its __init__ is not called."""
    made = kind.__new__(kind, *args)
    made.args = args
    made.__dict__.update(held)
    return made


# --- in the caller's program ------------------------------------------------------------------
def rebuild(problem: dict[str, Any]) -> BaseException:
    """The exception that a `function_error` problem describes, ready to be raised."""
    info = problem.get("error")
    if not isinstance(info, dict) or not info.get("qualname"):
        text = str(problem.get("detail") or "the function raised an exception")
        return FunctionError(text, call_id=problem.get("call_id"))
    made = _of_known_type(info) or _of_new_type(info, problem)
    frames = [Frame.of(item) for item in info.get("frames") or () if isinstance(item, dict)]
    made.__traceback__ = remote_traceback(frames)
    if info.get("cause"):
        made.__cause__ = RemoteCause(str(info["cause"]))
    if problem.get("call_id"):
        made.add_note(f"raised in remote call {problem['call_id']}")
    return made


def _of_known_type(info: dict[str, Any]) -> Exception | None:
    kind = _find_type(str(info.get("module")), str(info["qualname"]))
    travelled = _unpickled(info.get("pickle"))
    if kind is None:
        return travelled
    if travelled is not None and type(travelled) is kind:
        return travelled
    try:
        if travelled is not None:  # by value, from another process's edition of the same class
            found = make_bare(kind, travelled.args, vars(travelled))
        else:
            found = make_bare(kind, (str(info.get("message", "")),), {})
    except Exception:
        return travelled
    return found if isinstance(found, Exception) else None


def _unpickled(data: object) -> Exception | None:
    if not isinstance(data, str | bytes):
        return None
    import cloudpickle

    try:
        found = cloudpickle.loads(base64.b64decode(data) if isinstance(data, str) else data)
    except Exception:
        return None
    return found if isinstance(found, Exception) else None


def _find_type(module: str, qualname: str) -> type[Exception] | None:
    """The type of this name in a module that is loaded here or can be imported in the normal way."""
    if "<locals>" in qualname:
        return None
    found: Any = sys.modules.get(module)
    if found is None:
        try:
            found = importlib.import_module(module)
        except Exception:
            return None
    for part in qualname.split("."):
        try:
            found = getattr(found, part, None)
        except Exception:  # a name that is loaded when asked for, and what it needs is not here
            return None
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def _of_new_type(info: dict[str, Any], problem: dict[str, Any]) -> RemoteError:
    kind, message = _new_type(info), str(info.get("message", ""))
    made = kind.__new__(kind, message)  # not by __init__: some builtin bases want other arguments
    made.message = message
    made.args = (message,)
    made.details = {"call_id": problem.get("call_id"), "error": {k: v for k, v in info.items() if k != "pickle"}}
    return made


def _new_type(info: dict[str, Any]) -> type[RemoteError]:
    """A type of the remote one's name, as near to it as the types known here allow."""
    body = {"__module__": str(info.get("module")), "__qualname__": str(info["qualname"]), "__doc__": None}
    name = str(info["qualname"]).rpartition(".")[2]
    for base in _known_bases(info.get("mro") or ()):
        try:
            kind = type(name, (RemoteError, base), body)
            kind.__new__(kind, "")
        except TypeError:  # its layout or its __new__ does not go together with ours
            continue
        return kind
    return type(name, (RemoteError,), body)


def _known_bases(mro: Iterable[object]) -> Iterable[type[Exception]]:
    """Types of a remote type's ancestry that this program has loaded, nearest first."""
    for full in mro:
        module, _, name = str(full).rpartition(".")
        found = getattr(builtins if module == "builtins" else sys.modules.get(module), name, None)
        if isinstance(found, type) and issubclass(found, Exception) and found is not Exception:
            yield found
