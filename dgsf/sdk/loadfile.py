"""Loads a user's file for the command line, as an import would, and finds the functions in it.

The file's folder (the folder above its outermost package, if it lies in one) is put on `sys.path`, and the
file is imported under its own name, so that its functions can be referred to by module.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from dgsf.errors import UsageError
from dgsf.sdk.app import App
from dgsf.sdk.function import Function

AnyFunction = Function[..., Any, Any]


def load_file(path: str | Path) -> ModuleType:
    """The module of this file; UsageError says what is wrong with it."""
    file = Path(path).expanduser().resolve()
    if not file.is_file() or file.suffix != ".py":
        raise UsageError(f"{path} is not a Python file" if file.exists() else f"there is no file {path}")
    root, name = _import_name(file)
    _check_free(name, file)
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise UsageError(f"{path} cannot be loaded: {_where(error, file)}") from error


def functions_in(module: ModuleType) -> dict[str, AnyFunction]:
    """The functions that this module defines, by their names on the platform, in the order of the file."""
    found = sorted(_all_functions(module), key=lambda function: function.raw.__code__.co_firstlineno)
    return {function.name: function for function in found}


def pick(functions: dict[str, AnyFunction], wanted: str, where: str, others: Sequence[str] = ()) -> AnyFunction:
    """The function with this name: the platform's, or the one in the source; `others` would have done as well."""
    for function in functions.values():
        if wanted in (function.name, function.raw.__name__, function.name.partition(".")[2]):
            return function
    names = [*(function.raw.__name__ for function in functions.values()), *others]
    raise UsageError(f"{where} has no function {wanted!r}; it has: {', '.join(names) or 'none at all'}")


def _all_functions(module: ModuleType) -> Iterator[AnyFunction]:
    for value in vars(module).values():
        if isinstance(value, Function) and value.raw.__module__ == module.__name__:
            yield value
        elif isinstance(value, App):
            yield from (f for f in value.functions.values() if f.raw.__module__ == module.__name__)


def _import_name(file: Path) -> tuple[Path, str]:
    parts, folder = [file.stem], file.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    if not all(part.isidentifier() for part in parts):
        raise UsageError(f"{file.name} cannot be imported under that name; use letters, digits and '_'")
    return folder, ".".join(parts)


def _check_free(name: str, file: Path) -> None:
    top = name.partition(".")[0]
    there = getattr(sys.modules.get(name), "__file__", None)
    if top in sys.stdlib_module_names or (there is not None and Path(there).resolve() != file):
        raise UsageError(f"the name of {file.name} is taken by another module ({top}); rename the file")


def _where(error: BaseException, file: Path) -> str:
    """The error and the last line of the user's file that led to it."""
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.lineno:
        return f"{type(error).__name__}: {error}"  # its text says where
    at = f" (line {line})" if line else ""
    return f"{type(error).__name__}: {error}{at}"
