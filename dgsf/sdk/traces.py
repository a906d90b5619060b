"""Real traceback frames for places in another process.

Python prints, and debuggers walk, only frames of code that ran.  So for each remote place a tiny code object
with its file, name and line is run once; the frames that it leaves are linked into a traceback.
"""

from __future__ import annotations

import linecache
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, TracebackType
from typing import Any

MAX_LINE = 1_000_000
_NO_LOCATION = 15  # kind of an entry in a code object's line table that tells no position


@dataclass(frozen=True, slots=True)
class Frame:
    """A place in a remote program, and the source line there."""

    file: str
    line: int
    name: str
    code: str = ""

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> Frame:
        line = item.get("line")
        return cls(
            str(item.get("file") or "<remote>"),
            min(max(line, 1), MAX_LINE) if isinstance(line, int) else 1,
            str(item.get("name") or "<unknown>"),
            str(item.get("code") or ""),
        )


def remote_traceback(frames: Sequence[Frame]) -> TracebackType | None:
    """A traceback through these places, outermost first."""
    trace = None
    for frame in reversed(frames):
        shown = _with_source(frame)
        ran = _run_at(shown)
        trace = TracebackType(trace, ran.tb_frame, ran.tb_lasti, shown.line)
    return trace


def _run_at(frame: Frame) -> TracebackType:
    template = compile("raise _RemotePlace", frame.file, "exec", dont_inherit=True)
    code = template.replace(
        co_name=frame.name,
        co_qualname=frame.name,
        co_firstlineno=frame.line,
        co_linetable=_blank_line_table(template),
    )
    try:
        exec(code, {"__name__": "<remote>", "_RemotePlace": _RemotePlace})  # noqa: S102 - our own one line
    except _RemotePlace as error:
        trace = error.__traceback__
        assert trace is not None
        assert trace.tb_next is not None
        return trace.tb_next
    raise AssertionError("a raise that did not raise")


class _RemotePlace(Exception):
    """Leaves a frame behind."""


def _blank_line_table(code: CodeType) -> bytes:
    """No positions: the traceback's own line counts, and no columns are underlined."""
    units, table = len(code.co_code) // 2, bytearray()
    while units > 0:
        length = min(units, 8)
        table.append(0x80 | _NO_LOCATION << 3 | (length - 1))
        units -= length
    return bytes(table)


def _with_source(frame: Frame) -> Frame:
    """The frame under a file name for which the right source line is shown."""
    if not frame.code:
        return frame
    here = linecache.getline(frame.file, frame.line).strip()
    if here == frame.code.strip():
        return frame
    # The file is not here, or is another edition: keep the remote line under a name of its own.
    named = frame if not here else Frame(f"{frame.file} (remote)", frame.line, frame.name, frame.code)
    _remember_line(named)
    return named


def _remember_line(frame: Frame) -> None:
    known = linecache.cache.get(frame.file)
    lines = list(known[2]) if known is not None and len(known) == 4 else []
    lines.extend([""] * (frame.line - len(lines)))
    lines[frame.line - 1] = frame.code + "\n"
    linecache.cache[frame.file] = (0, None, lines, frame.file)
