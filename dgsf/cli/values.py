"""Values of the command line, as the parameters that they are for want them. Pure.

A value is JSON, or else text.  Where a parameter is annotated with plain types (int, float, bool, str, None, or any of
them), a value that is none of these is refused here, by the option's name; other annotations are the function's own
business.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from dgsf.errors import UsageError

_WORDS = {"int": "an int", "float": "a float", "bool": "a bool (true or false)", "str": "text", "None": "null"}
_OPTIONAL = re.compile(r"^(?:typing\.)?Optional\[(?P<inside>[^\[\]]*)\]$")
_UNION = re.compile(r"^(?:typing\.)?Union\[(?P<inside>[^\[\]]*)\]$")
_MISFIT = object()


def read_value(text: str) -> Any:
    """JSON if it is that, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_for(parameter: inspect.Parameter | None, text: str, said: str) -> Any:
    """The value of this text for a parameter; UsageError, by what the user said, if it is of another type."""
    kinds = kinds_of(parameter) if parameter is not None else ()
    if not kinds:
        return read_value(text)
    value = read_value(text)
    for kind, read in _READERS.items():  # text last: everything is text
        if kind in kinds and (found := read(text, value)) is not _MISFIT:
            return found
    wanted = " or ".join(_WORDS[kind] for kind in kinds)
    raise UsageError(f"{said} takes {wanted}, not {text!r}")


def kinds_of(parameter: inspect.Parameter) -> tuple[str, ...]:
    """The plain types that a parameter is annotated with; empty if there is anything else among them."""
    note = parameter.annotation
    if note is inspect.Parameter.empty:
        return ()
    text = note if isinstance(note, str) else inspect.formatannotation(note)
    names = [name.strip().removeprefix("builtins.").replace("NoneType", "None") for name in _alternatives(text.strip())]
    if parameter.default is None:
        names.append("None")  # also where the annotation forgot to say it
    return tuple(dict.fromkeys(names)) if all(name in _WORDS for name in names) else ()


def _alternatives(annotation: str) -> list[str]:
    if found := _OPTIONAL.match(annotation):
        return [found["inside"], "None"]
    if found := _UNION.match(annotation):
        return found["inside"].split(",")
    return annotation.split("|")


def parameter_at(signature: inspect.Signature | None, place: int | str) -> inspect.Parameter | None:
    """Which parameter takes an argument of this position or name."""
    if signature is None:
        return None
    parameters = signature.parameters
    if isinstance(place, str):
        return parameters.get(place) or _of_kind(parameters, inspect.Parameter.VAR_KEYWORD)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ordered = [each for each in parameters.values() if each.kind in positional]
    return ordered[place] if place < len(ordered) else _of_kind(parameters, inspect.Parameter.VAR_POSITIONAL)


def _of_kind(parameters: Mapping[str, inspect.Parameter], kind: Any) -> inspect.Parameter | None:
    return next((each for each in parameters.values() if each.kind is kind), None)


# --- one reader per type: the value, or _MISFIT -------------------------------------------------
def _null(text: str, value: Any) -> Any:
    return None if value is None else _MISFIT


def _bool(text: str, value: Any) -> Any:
    if text in ("True", "False"):
        return text == "True"
    return value if isinstance(value, bool) else _MISFIT


def _int(text: str, value: Any) -> Any:
    return value if isinstance(value, int) and not isinstance(value, bool) else _MISFIT


def _float(text: str, value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value  # a whole number stays one, as in Python
    try:
        return float(text)  # .5, inf
    except ValueError:
        return _MISFIT


def _str(text: str, value: Any) -> Any:
    return value if isinstance(value, str) else text  # a number stays the text that it was


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "None": _null,
    "bool": _bool,
    "int": _int,
    "float": _float,
    "str": _str,
}
