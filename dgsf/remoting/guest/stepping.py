"""A journal taken apart: one call at a time, each with the name of its operator. Pure.

Used when an executor crashed and what it had not answered is done again on another device: call by call, so that a
second crash is known by its operator and its line.  A run of a trace becomes runs of its single entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from dgsf.remoting.protocol import Record

_DEFINE, _FREE, _ASK = int(Record.DEFINE), int(Record.FREE), int(Record.ASK)
_TRACE, _RUN = int(Record.TRACE), int(Record.RUN)


class Step(NamedTuple):
    """A record that does one call at most; `op` is empty if it does none."""

    record: list[Any]
    op: str


class Stepper:
    """Follows records in their order; `calls` are those before the next one."""

    def __init__(self, definitions: Iterable[list[Any]]) -> None:
        self.calls = 0
        self._kinds: dict[int, str] = {}
        self._traces: dict[int, list[Any]] = {}
        for record in definitions:
            self._learn(record)

    def skip(self, records: Iterable[list[Any]]) -> None:
        """These are done as they are."""
        for record in records:
            self._learn(record)
            if record[0] == _RUN:
                self.calls += sum(entry[0] != _FREE for entry in self._traces[record[1]][record[3] : record[4]])
            else:
                self.calls += record[0] >= 0 or record[0] == _ASK

    def steps(self, records: Iterable[list[Any]]) -> Iterator[Step]:
        for record in records:
            self._learn(record)
            if record[0] == _RUN:
                yield from self._entries(*record[1:])
            else:
                yield self._step(record)

    def _step(self, record: list[Any]) -> Step:
        kind = record[2] if record[0] == _ASK else record[0]
        if kind < 0:
            return Step(record, "")
        self.calls += 1
        return Step(record, self._kinds.get(kind, ""))

    def _entries(self, trace: int, base: int, start: int, stop: int, floats: Iterable[float] = ()) -> Iterator[Step]:
        given = iter(floats)
        for index in range(start, stop):
            kind, *rest = self._traces[trace][index]
            holes = rest[2].count(None) if len(rest) > 2 else 0
            own = list(islice(given, holes))
            self.calls += kind != _FREE
            yield Step(
                [_RUN, trace, base, index, index + 1, *([own] if own else [])],
                "" if kind == _FREE else self._kinds.get(kind, ""),
            )

    def _learn(self, record: list[Any]) -> None:
        if record[0] == _DEFINE:
            self._kinds[record[1]] = record[2]
        elif record[0] == _TRACE:
            self._traces[record[1]] = record[2]
