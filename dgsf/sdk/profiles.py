"""Profiles of functions as a file beside their source: what `dgsf profile --save` found, for attach="auto".

`shapes.py` has its profiles in `shapes.profiles.json`, by the name of the function in the source: a curve, or a curve
and how many times shorter than recorded its kernels were taken to be.  The file is read only for functions that say
attach="auto" and give no profile themselves; without it they run near.  Whoever is about to replace a profile is not
kept from it by the one that is there.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from dgsf.core.options import AUTO, parse_options
from dgsf.core.perfmodel import Curve
from dgsf.errors import InvalidOption, UsageError
from dgsf.sdk.place import in_worker

_unread: ContextVar[bool] = ContextVar("_unread", default=False)


def profiles_file(source: Path) -> Path:
    return source.with_suffix(".profiles.json")


def with_profile(given: Mapping[str, Any], raw: Callable[..., Any]) -> dict[str, Any]:
    """The options with the stored profile, if they want one and it is there."""
    if given.get("attach") != AUTO or "profile" in given or in_worker() or _unread.get():  # in a worker all is decided
        return dict(given)
    source = _source_of(raw)
    found = _curve_in(profiles_file(source), raw.__name__) if source is not None else None
    return {**given, "profile": found} if found is not None else dict(given)


@contextmanager
def stored_unread() -> Iterator[None]:
    """Meanwhile functions come without their stored profiles."""
    token = _unread.set(True)
    try:
        yield
    finally:
        _unread.reset(token)


def save_profile(source: Path, name: str, curve: Curve, faster: float = 1.0) -> Path:
    """Adds it to the file of this source, in place of an earlier one; `faster`: the device that it is for."""
    path = profiles_file(source)
    points = [[trip, round(ratio, 4)] for trip, ratio in curve]
    profiles = {**read_profiles(path), name: points if faster == 1 else {"faster": faster, "curve": points}}
    lines = [f" {json.dumps(key)}: {json.dumps(profiles[key])}" for key in sorted(profiles)]
    try:
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def _curve_in(path: Path, name: str) -> Any:
    """Refused here, where the file is known, if it is none."""
    found = read_profiles(path).get(name)
    if found is None:
        return None
    if isinstance(found, dict) and "curve" not in found:
        raise UsageError(f"{path}: the profile of {name} has no curve; 'dgsf profile --save' writes it anew")
    curve = found["curve"] if isinstance(found, dict) else found
    try:
        parse_options({"profile": curve})
    except InvalidOption as error:
        raise UsageError(
            f"{path}: the profile of {name}: {error.message}; 'dgsf profile --save' writes it anew"
        ) from None
    return curve


def _source_of(raw: Callable[..., Any]) -> Path | None:
    try:
        return Path(inspect.getfile(inspect.unwrap(raw)))
    except (TypeError, OSError):
        return None


def read_profiles(path: Path) -> dict[str, Any]:
    """All that the file has, by name; none if there is no file."""
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path} cannot be read: {error}; 'dgsf profile --save' writes it anew if you delete it"
        ) from None
    if not isinstance(found, dict):
        raise UsageError(f"{path} is not a file of profiles; delete it, and 'dgsf profile --save' writes it anew")
    return found
