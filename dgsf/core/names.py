"""Names of functions and apps: what is allowed, checked in the SDK and in the gateway by the same rule."""

from __future__ import annotations

import re

from dgsf.errors import InvalidName

MAX_NAME = 128
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")


def check_name(name: object, what: str = "function") -> str:
    """The name itself, or InvalidName that says what a name may be."""
    if not isinstance(name, str) or len(name) > MAX_NAME or not _NAME.fullmatch(name):
        shown = repr(name) if len(repr(name)) <= MAX_NAME else repr(name)[:MAX_NAME] + "..."
        raise InvalidName(
            f"{shown} cannot be the name of the {what}: use up to {MAX_NAME} letters, digits and '_', '-', '.', "
            "beginning with a letter, a digit or '_'"
        )
    return name
