"""From the number of a call to the line of the program that made it.

Calls are noted by code object and instruction, which is cheap; line numbers are worked out only when an error
asks for one.  Calls inside a trace are known by the template, which remembers the lines of its own first
run.  Only the last so many batches are kept.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from dgsf.errors import DgsfError
from dgsf.remoting.guest.failures import kind_of

Spot = tuple[CodeType, int] | None
_KEPT = 16_384  # batches
_HERE = str(Path(__file__).parent)


def _torch_folder() -> str:
    spec = sys.modules.get("torch")
    return str(Path(spec.__file__).parent) if spec is not None and spec.__file__ else _HERE


_INTERNAL: dict[str, bool] = {}


def _is_internal(filename: str) -> bool:
    inside = filename.startswith((_HERE, _torch_folder(), "<frozen"))
    _INTERNAL[filename] = inside
    return inside


def here() -> Spot:
    """The innermost line that belongs neither to torch nor to the guest."""
    frame: FrameType | None = sys._getframe(2)
    known = _INTERNAL
    while frame is not None:
        filename = frame.f_code.co_filename
        inside = known.get(filename)
        if inside is None:
            inside = _is_internal(filename)
        if not inside:
            return frame.f_code, frame.f_lasti
        frame = frame.f_back
    return None


class Lines:
    """A ring of batches: the number of the first call, and how to find the spots of it and the next ones."""

    def __init__(self) -> None:
        self._batches: deque[tuple[int, Callable[[int], Spot]]] = deque(maxlen=_KEPT)

    def note(self, first: int, spot_of: Callable[[int], Spot]) -> None:
        """Calls from this number on are found by this function (0: the first)."""
        self._batches.append((first, spot_of))

    def find(self, call: int) -> Spot:
        index = bisect_right(self._batches, call, key=lambda batch: batch[0]) - 1
        if index < 0:
            return None
        first, spot_of = self._batches[index]
        try:
            return spot_of(call - first)
        except IndexError:
            return None

    def error(self, call: int, code: str, message: str) -> DgsfError:
        """What the executor told of this call (0: of none), with the line that made it."""
        where = self.describe(call)
        kind, message = kind_of(code, message)
        if where:
            message = f"{message}\n  at {where['file']}:{where['line']}, in {where['function']}"
        return kind(message, **where)

    def describe(self, call: int) -> dict[str, Any]:
        """File, line and function of a call, for an error's details; empty if it is too long ago."""
        spot = self.find(call)
        if spot is None:
            return {}
        code, instruction = spot
        return {"file": code.co_filename, "line": line_of(code, instruction), "function": code.co_qualname}


def line_of(code: CodeType, instruction: int) -> int:
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return line
    return code.co_firstlineno
