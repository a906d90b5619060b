"""Which modules are the user's own, and which of them a function needs.

A module is the project's if it has Python source that is neither the standard library's, nor installed
(site-packages), nor a part of this platform.  What a function needs is found without running anything: from
the imports written in the sources, as Python's own finders resolve them.  Modules of packages that are
reached travel too, so that plug-ins which are imported by name at run time are there.
"""

from __future__ import annotations

import ast
import os
import pkgutil
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import decode_source
from pathlib import Path
from types import ModuleType

_PLATFORM = ("dgsf", "proxy", "gateway")
_INSTALLED_PARTS = {"site-packages", "dist-packages"}


@dataclass(frozen=True, slots=True)
class Source:
    """A module as it travels."""

    name: str
    text: str
    is_package: bool
    file: str


def find_sources(start: Iterable[str], *, whole_packages: bool) -> dict[str, Source]:
    """The project modules reachable from these, sorted by name; `whole_packages`: with all their siblings."""
    found: dict[str, Source] = {}
    seen: set[str] = set()
    waiting = list(start)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        source = read_source(name)
        if source is None:
            continue
        found[name] = source
        waiting.extend(_parents(name))
        waiting.extend(imports_of(source))
        waiting.extend(_module_globals(name))
        if whole_packages and source.is_package:
            waiting.extend(_submodules(name))
    return dict(sorted(found.items()))


def read_source(name: str) -> Source | None:
    """The module's source, if it is the project's and has one; it is not imported."""
    spec = find_spec(name)
    if spec is None or not _is_project(spec):
        return None
    is_package = spec.submodule_search_locations is not None
    if spec.origin is None:  # a namespace package: a folder without a file of its own
        return Source(name, "", True, "")
    text = _text_of(spec)
    return None if text is None else Source(name, text, is_package, spec.origin)


def _text_of(spec: ModuleSpec) -> str | None:
    """The source text, from the file where there is one: not every loader (pytest's, say) tells its source."""
    try:
        if spec.origin and spec.origin.endswith(".py") and os.path.isfile(spec.origin):
            return decode_source(Path(spec.origin).read_bytes())
        text: str | None = spec.loader.get_source(spec.name)  # type: ignore[union-attr]
    except (AttributeError, ImportError, OSError, SyntaxError, UnicodeDecodeError):
        return None
    return text


def find_spec(name: str) -> ModuleSpec | None:
    """The spec of a module, loaded or not, found without importing it or its parents."""
    module = sys.modules.get(name)
    if module is not None and getattr(module, "__spec__", None) is not None:
        return module.__spec__
    parent, _, _ = name.rpartition(".")
    path = None
    if parent:
        above = find_spec(parent)
        if above is None or above.submodule_search_locations is None:
            return None
        path = list(above.submodule_search_locations)
    return _ask_finders(name, path)


def is_project_module(name: str) -> bool:
    return read_source(name) is not None


def imports_of(source: Source) -> Iterator[str]:
    """Names of modules that this source may import, anywhere in it; some may not exist."""
    try:
        tree = ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError):
        return
    package = source.name if source.is_package else source.name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _from_import(node, package)


def _from_import(node: ast.ImportFrom, package: str) -> Iterator[str]:
    base = node.module or ""
    if node.level:
        above = package.split(".")[: len(package.split(".")) - node.level + 1]
        base = ".".join([*above, base] if base else above)
    if not base:
        return
    yield base
    yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


def _parents(name: str) -> Iterator[str]:
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def _module_globals(name: str) -> list[str]:
    """Modules that a loaded module holds, however it came by them."""
    module = sys.modules.get(name)
    return [] if module is None else [v.__name__ for v in vars(module).values() if isinstance(v, ModuleType)]


def _submodules(name: str) -> list[str]:
    spec = find_spec(name)
    if spec is None or spec.origin is None:  # a plain folder may hold anything: only what is imported goes
        return []
    locations = list(spec.submodule_search_locations or ())
    return [f"{name}.{item.name}" for item in pkgutil.iter_modules(locations)]


def _ask_finders(name: str, path: list[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, path)
        except (ImportError, OSError, ValueError, AttributeError):
            continue
        if spec is not None:
            return spec
    return None


def _is_project(spec: ModuleSpec) -> bool:
    if spec.name.partition(".")[0] in sys.stdlib_module_names:
        return False
    if spec.origin in ("built-in", "frozen"):
        return False
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return bool(places) and not any(_is_foreign(Path(place).resolve()) for place in places)


def _is_foreign(path: Path) -> bool:
    if _INSTALLED_PARTS.intersection(path.parts):
        return True
    return any(path.is_relative_to(folder) for folder in _foreign_folders())


@cache
def _foreign_folders() -> tuple[Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {Path(sysconfig.get_path(name)).resolve() for name in names if sysconfig.get_path(name)}
    folders.add(Path(site.getusersitepackages()).resolve())
    here = Path(__file__).resolve().parents[2]
    folders.update(here / name for name in _PLATFORM)
    return tuple(folders)
