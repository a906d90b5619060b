"""Whether JSON arguments fit a function's signature, told before anything runs.

A `Binder` is prepared once per version from the signature that came with the deploy.  A JSON object holds
keyword arguments, a JSON array positional ones.  It decides by names and counts only; types are the
function's own business.  Errors name the argument and say what to send instead.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dgsf.errors import InvalidArguments

POSITIONAL_ONLY = "POSITIONAL_ONLY"
POSITIONAL_OR_KEYWORD = "POSITIONAL_OR_KEYWORD"
VAR_POSITIONAL = "VAR_POSITIONAL"
KEYWORD_ONLY = "KEYWORD_ONLY"
VAR_KEYWORD = "VAR_KEYWORD"
KINDS = (POSITIONAL_ONLY, POSITIONAL_OR_KEYWORD, VAR_POSITIONAL, KEYWORD_ONLY, VAR_KEYWORD)
_SHOWN = 80
_JSON_NAMES = {str: "a string", bool: "true or false", int: "a number", float: "a number", type(None): "null"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a function; `kind` is the name that `inspect` gives it."""

    name: str
    kind: str
    required: bool


def check_signature(parameters: Sequence[Parameter]) -> str | None:
    """What is wrong with this signature, or None: it must be one that Python could have made."""
    order = -1
    optional = False
    seen: set[str] = set()
    for item in parameters:
        if item.kind not in KINDS:
            return f"parameter {item.name!r} has the unknown kind {item.kind!r}"
        rank = KINDS.index(item.kind)
        if rank < order or (rank == order and item.kind in (VAR_POSITIONAL, VAR_KEYWORD)):
            return f"parameter {item.name!r} of kind {item.kind} is out of order"
        if not item.name.isidentifier() or item.name in seen:
            return f"{item.name!r} is no name of a parameter, or used twice"
        if item.kind in (VAR_POSITIONAL, VAR_KEYWORD) and item.required:
            return f"parameter {item.name!r} of kind {item.kind} cannot be required"
        if rank < KINDS.index(VAR_POSITIONAL):
            if item.required and optional:
                return f"required parameter {item.name!r} follows an optional one"
            optional = optional or not item.required
        order = rank
        seen.add(item.name)
    return None


class Binder:
    """The prepared check of one signature."""

    __slots__ = (
        "_any_keyword",
        "_any_position",
        "_keyword_only_required",
        "_most",
        "_named",
        "_positional",
        "_positional_only_required",
        "_required",
    )

    def __init__(self, parameters: Iterable[Parameter]) -> None:
        items = tuple(parameters)
        self._positional = tuple(p for p in items if p.kind in (POSITIONAL_ONLY, POSITIONAL_OR_KEYWORD))
        named = tuple(p for p in items if p.kind in (POSITIONAL_OR_KEYWORD, KEYWORD_ONLY))
        self._named = frozenset(p.name for p in named)
        self._required = frozenset(p.name for p in named if p.required)
        self._positional_only_required = tuple(p.name for p in items if p.kind == POSITIONAL_ONLY and p.required)
        self._keyword_only_required = tuple(p.name for p in items if p.kind == KEYWORD_ONLY and p.required)
        self._any_keyword = any(p.kind == VAR_KEYWORD for p in items)
        self._any_position = any(p.kind == VAR_POSITIONAL for p in items)
        self._most = len(self._positional)

    def check(self, arguments: object) -> None:
        """Raise InvalidArguments unless these decoded JSON arguments bind."""
        if type(arguments) is dict:
            keys = arguments.keys()
            fits = self._required <= keys and (self._any_keyword or keys <= self._named)
            if not fits or self._positional_only_required:
                raise self._misfit_of_names(arguments)
        elif type(arguments) is list:
            self.check_count(len(arguments))
        else:
            found = _JSON_NAMES.get(type(arguments), "something else")
            raise InvalidArguments(
                f"expected a JSON object (keyword arguments) or array (positional arguments), found {found}"
            )

    def check_count(self, given: int) -> None:
        """Raise InvalidArguments unless so many positional arguments bind."""
        if given > self._most and not self._any_position:
            takes = f"{self._most} positional argument{'' if self._most == 1 else 's'}"
            raise InvalidArguments(f"takes {takes} but {given} {'was' if given == 1 else 'were'} given")
        missing = [p.name for p in self._positional[given:] if p.required]
        if missing:
            raise _missing(missing)
        if self._keyword_only_required:
            name = self._keyword_only_required[0]
            raise InvalidArguments(
                f"missing argument {name!r}: it goes by name only, send a JSON object", argument=name
            )

    def _misfit_of_names(self, arguments: Mapping[str, object]) -> InvalidArguments:
        if self._positional_only_required:
            name = self._positional_only_required[0]
            return InvalidArguments(
                f"missing argument {name!r}: it goes by position only, send a JSON array", argument=name
            )
        if not self._any_keyword:
            for name in arguments:
                if name not in self._named:
                    return self._unexpected(name)
        return _missing([p for p in self._in_order() if p not in arguments])

    def _unexpected(self, name: str) -> InvalidArguments:
        if any(p.name == name for p in self._positional):
            return InvalidArguments(f"argument {name!r} goes by position only, send a JSON array", argument=name)
        shown = name if len(name) <= _SHOWN else name[:_SHOWN] + "..."
        close = difflib.get_close_matches(name[:_SHOWN], self._named, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return InvalidArguments(f"unexpected argument {shown!r}{hint}", argument=shown)

    def _in_order(self) -> list[str]:
        """The names of required arguments as the signature lists them."""
        ordered = [p.name for p in self._positional if p.name in self._required]
        return ordered + list(self._keyword_only_required)


def _missing(names: Sequence[str]) -> InvalidArguments:
    listed = ", ".join(repr(name) for name in names)
    return InvalidArguments(f"missing argument{'' if len(names) == 1 else 's'} {listed}", argument=names[0])
