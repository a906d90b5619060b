"""Profiles of functions as a file beside their source: what `dgsf profile --save` found, for attach="auto".

`shapes.py` has its profiles in `shapes.profiles.json`, by the name of the function in the source.  The file is
read only for functions that say attach="auto" and give no profile themselves; without it they run near.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dgsf.core.options import AUTO
from dgsf.core.perfmodel import Curve
from dgsf.errors import UsageError
from dgsf.sdk.place import in_worker


def profiles_file(source: Path) -> Path:
    return source.with_suffix(".profiles.json")


def with_profile(given: Mapping[str, Any], raw: Callable[..., Any]) -> dict[str, Any]:
    """The options with the stored profile, if they want one and it is there."""
    if given.get("attach") != AUTO or "profile" in given or in_worker():  # in a worker all is decided
        return dict(given)
    source = _source_of(raw)
    found = _read(profiles_file(source)).get(raw.__name__) if source is not None else None
    return {**given, "profile": found} if found is not None else dict(given)


def save_profile(source: Path, name: str, curve: Curve) -> Path:
    """Adds it to the file of this source, in place of an earlier one."""
    path = profiles_file(source)
    profiles = {**_read(path), name: [[trip, round(ratio, 4)] for trip, ratio in curve]}
    lines = [f" {json.dumps(key)}: {json.dumps(profiles[key])}" for key in sorted(profiles)]
    try:
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def _source_of(raw: Callable[..., Any]) -> Path | None:
    try:
        return Path(inspect.getfile(inspect.unwrap(raw)))
    except (TypeError, OSError):
        return None


def _read(path: Path) -> dict[str, Any]:
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
