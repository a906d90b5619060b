"""Opens a packed function, in a worker: the only place where a user's code bytes become code.

The modules that travelled with the function are served from memory by an import finder; they win over files
of the same name on the worker.  Their sources are put in linecache, so that tracebacks show the lines.
Whatever keeps a function from loading becomes a FunctionLoadError that names the cause.
"""

from __future__ import annotations

import importlib.abc
import linecache
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

import msgspec

from dgsf.errors import FunctionLoadError
from dgsf.sdk.place import become_worker


class PackedModule(msgspec.Struct, frozen=True):
    """A module's source; `file` is where it lay when it was packed, for tracebacks."""

    source: str
    is_package: bool
    file: str


class Packed(msgspec.Struct, frozen=True):
    """The code bytes of a function, opened one layer: modules, the pickled function, and lines for tracebacks."""

    modules: dict[str, PackedModule]
    function: bytes
    lines: dict[str, str] = {}  # file: source, of a function that goes by value


class BundleFinder(importlib.abc.MetaPathFinder):
    """Finds the modules that travelled with functions."""

    def __init__(self) -> None:
        self.modules: dict[str, PackedModule] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        packed = self.modules.get(fullname)
        if packed is None:
            return None
        loader = BundleLoader(fullname, packed)
        spec = ModuleSpec(fullname, loader, origin=packed.file or None, is_package=packed.is_package)
        spec.has_location = bool(packed.file)
        return spec


class BundleLoader(importlib.abc.InspectLoader):
    """Runs one module from its packed source."""

    def __init__(self, name: str, packed: PackedModule) -> None:
        self._name = name
        self._packed = packed

    def get_source(self, fullname: str) -> str:
        return self._packed.source

    def is_package(self, fullname: str) -> bool:
        return self._packed.is_package

    def get_code(self, fullname: str) -> CodeType:
        file = self._packed.file or f"<{self._name}>"
        remember_source(file, self._packed.source)
        code: CodeType = compile(self._packed.source, file, "exec", dont_inherit=True)
        return code


def remember_source(file: str, source: str) -> None:
    """Lets tracebacks show lines of this file; without a time of change it is never dropped."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)


_finder = BundleFinder()


def install(modules: Mapping[str, PackedModule]) -> None:
    """Serves these modules to `import`; a loaded module of the same name from elsewhere is let go."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    for name, packed in modules.items():
        if _finder.modules.get(name) != packed:
            sys.modules.pop(name, None)
            _finder.modules[name] = packed


def load_function(code: bytes) -> Callable[..., Any]:
    """The plain callable of these code bytes; FunctionLoadError says why it cannot be."""
    import cloudpickle

    try:
        packed = msgspec.msgpack.decode(code, type=Packed)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FunctionLoadError(f"the packed function is damaged: {error}") from error
    become_worker()  # also for what the user's modules do while they are imported
    try:
        install(packed.modules)
        for file, source in packed.lines.items():
            remember_source(file, source)
        found = cloudpickle.loads(packed.function)
    except (Exception, SystemExit) as error:
        raise _load_error(error) from error
    return unwrap(found)


def unwrap(found: object) -> Callable[..., Any]:
    """The user's own callable inside an SDK function, or the callable itself."""
    from dgsf.sdk.function import Function

    raw: object = found.raw if isinstance(found, Function) else found
    if not callable(raw):
        raise FunctionLoadError(f"the packed function is a {type(raw).__qualname__}, which cannot be called")
    return raw


def _load_error(error: BaseException) -> FunctionLoadError:
    from dgsf.sdk.failures import describe

    text = f"the function could not be loaded: {type(error).__name__}: {error}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        top = error.name.partition(".")[0]
        text = f"the function could not be loaded: No module named {error.name!r}; " + (
            f"the package {top!r} is not installed on the workers"
            if top not in _finder.modules
            else "it was not found among the modules that travelled with the function"
        )
    return FunctionLoadError(text, error=describe(error))
