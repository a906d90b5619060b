"""Whether a body is JSON, before anything is started for it.

The bytes travel on to the worker as they came; here they are only looked at.  Refused are what the
standard refuses, and what two readers could understand differently: repeated names in an object.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from dgsf.errors import InvalidJson

_decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode


def parse(data: bytes) -> object:
    """The value of a JSON text, or InvalidJson that says where it is wrong."""
    try:
        value = _decode(data)
    except UnicodeDecodeError as error:
        raise InvalidJson(f"the body is not valid JSON: a string is not UTF-8 ({error.reason})") from None
    except RecursionError:
        raise InvalidJson("the body is not valid JSON: it is nested too deeply") from None
    except msgspec.DecodeError as error:
        raise InvalidJson(f"the body is not valid JSON: {error}") from None
    if type(value) is dict or type(value) is list:
        _refuse_repeated_names(data, value)
    return value


def _refuse_repeated_names(data: bytes, value: dict[str, Any] | list[Any]) -> None:
    """Each member of an object has one colon; if there are no more colons than members, no name repeats."""
    colons = data.count(b":")
    members = len(value) if type(value) is dict else 0
    if colons > members and colons > _count_members(value):
        _look_closely(data)


def _count_members(value: object) -> int:
    count = 0
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if type(item) is dict:
            count += len(item)
            waiting.extend(item.values())
        elif type(item) is list:
            waiting.extend(item)
    return count


def _look_closely(data: bytes) -> None:
    """Colons in strings, or repeated names: only reading it member by member tells."""
    try:
        json.loads(data, object_pairs_hook=_members)
    except RecursionError:
        raise InvalidJson("the body is not valid JSON: it is nested too deeply") from None


def _members(pairs: list[tuple[str, Any]]) -> None:
    seen = set()
    for name, _ in pairs:
        if name in seen:
            shown = name if len(name) <= 80 else name[:80] + "..."
            raise InvalidJson(f"the body is not valid JSON: the name {shown!r} occurs twice in one object", name=shown)
        seen.add(name)
