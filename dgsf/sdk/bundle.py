"""Packs a function for its journey: the pickled function and the sources of the user's own modules.

A function of an importable module goes by reference, and the module travels as source; a function of the
main script or of an interactive session goes by value.  Nothing here talks to the platform.
"""

from __future__ import annotations

import hashlib
import linecache
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import msgspec

from dgsf.config import KIB, MIB
from dgsf.errors import UsageError
from dgsf.sdk.project import Source, find_sources, find_spec, imports_of, is_project_module
from dgsf.sdk.unbundle import Packed, PackedModule

MAX_SOURCE_BYTES = 16 * MIB
MAX_CODE_BYTES = 32 * MIB
MAX_LINES_BYTES = 256 * KIB
_MAIN = ("__main__", "__mp_main__")
# Python 3.11 cannot build syntax trees in two threads at once (its recursion counter is shared).
_one_at_a_time = threading.Lock()


def _unlock_in_child() -> None:
    global _one_at_a_time
    _one_at_a_time = threading.Lock()


os.register_at_fork(after_in_child=_unlock_in_child)


@dataclass(frozen=True, slots=True)
class Bundle:
    """The code bytes of a function and their sha256."""

    code: bytes
    digest: str


def pack(target: Callable[..., Any], raw: Callable[..., Any] | None = None) -> Bundle:
    """The code bytes of a function; `target` is what is pickled, `raw` the user's callable inside it."""
    with _one_at_a_time:
        return _pack(target, target if raw is None else raw)


def _pack(target: Callable[..., Any], raw: Callable[..., Any]) -> Bundle:
    home = getattr(raw, "__module__", None) or "__main__"
    modules = _gather(_start(raw, home))
    with _by_value(home):
        function = _pickle(target, raw)
    sources = {name: PackedModule(s.text, s.is_package, s.file) for name, s in modules.items()}
    packed = Packed(sources, function, _lines(raw) if home in _MAIN else {})
    code = msgspec.msgpack.encode(packed)
    if len(code) > MAX_CODE_BYTES:
        raise UsageError(
            f"the packed function {_name(raw)} has {len(code) // KIB:,} KiB, the limit is {MAX_CODE_BYTES // KIB:,} "
            "KiB; does it hold large data in a global variable or a default value? Load it inside the function"
        )
    return Bundle(code, hashlib.sha256(code).hexdigest())


def _lines(raw: Callable[..., Any]) -> dict[str, str]:
    """The source of a function that goes by value, so that remote tracebacks show its lines."""
    file = getattr(getattr(raw, "__code__", None), "co_filename", "")
    source = "".join(linecache.getlines(file)) if file else ""
    return {file: source} if 0 < len(source) <= MAX_LINES_BYTES else {}


def _start(raw: Callable[..., Any], home: str) -> set[str]:
    """The modules from which the search begins."""
    if home not in _MAIN and find_spec(home) is not None:
        return {home}
    space = getattr(raw, "__globals__", None) or vars(sys.modules.get(home, ModuleType(home)))
    return {*_homes_of(space.values()), *_imports_of_file(space.get("__file__"))}


def _homes_of(values: Iterable[object]) -> Iterator[str]:
    for value in list(values):
        name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if isinstance(name, str) and name not in _MAIN:
            yield name


def _imports_of_file(file: object) -> list[str]:
    if not isinstance(file, str):
        return []
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    return list(imports_of(Source("__main__", text, False, file)))


def _gather(start: set[str]) -> dict[str, Source]:
    everything = find_sources(start, whole_packages=True)
    if _size(everything) <= MAX_SOURCE_BYTES:
        return everything
    # A large package: only what the imports name goes along.
    needed = find_sources(start, whole_packages=False)
    if _size(needed) > MAX_SOURCE_BYTES:
        largest = sorted(needed.values(), key=lambda source: -len(source.text))[:3]
        names = ", ".join(f"{source.name} ({len(source.text) // KIB:,} KiB)" for source in largest)
        raise UsageError(
            f"the function's own modules have {_size(needed) // KIB:,} KiB of source, the limit is "
            f"{MAX_SOURCE_BYTES // KIB:,} KiB; the largest: {names}"
        )
    return needed


def _size(sources: dict[str, Source]) -> int:
    return sum(len(source.text) for source in sources.values())


@contextmanager
def _by_value(home: str) -> Iterator[None]:
    """Pickles a module by value that the worker could not import: one without source, made on the fly."""
    module = sys.modules.get(home)
    if module is None or home in _MAIN or can_be_imported(home):
        yield
        return
    import cloudpickle

    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def can_be_imported(home: str) -> bool:
    """Whether a worker can import this module: from its source, which travels, or as an installed one."""
    spec = find_spec(home)
    if spec is None:
        return False
    return is_project_module(home) or spec.has_location or spec.origin in ("built-in", "frozen")


def _pickle(target: Callable[..., Any], raw: Callable[..., Any]) -> bytes:
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(target)
    except Exception as error:
        culprit = _culprit(raw) if isinstance(raw, FunctionType) else ""
        raise UsageError(f"the function {_name(raw)} cannot be packed: {culprit or error}") from error
    return data


def _culprit(raw: FunctionType) -> str:
    """Which global variable or closed-over value it is that cannot be pickled, for the message."""
    import cloudpickle

    held = {name: raw.__globals__[name] for name in raw.__code__.co_names if name in raw.__globals__}
    for name, cell in zip(raw.__code__.co_freevars, raw.__closure__ or (), strict=False):
        held[name] = cell.cell_contents
    for name, value in held.items():
        try:
            cloudpickle.dumps(value)
        except Exception as error:
            return f"it uses {name!r} of type {type(value).__qualname__}: {error}; make it inside the function"
    return ""


def _name(raw: Callable[..., Any]) -> str:
    return repr(getattr(raw, "__qualname__", type(raw).__qualname__))
