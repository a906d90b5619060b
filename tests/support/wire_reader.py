"""Reads records as an executor would, but only writes down what would be done: calls and frees, one by one."""

from __future__ import annotations

from typing import Any

import msgspec

from dgsf.remoting.protocol import Record


class WireReader:
    """`done` is the flat list of what the records so far ask for."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.runs = 0
        self._kinds: dict[int, str] = {}
        self.traces: dict[int, list[Any]] = {}

    def read(self, records: list[Any]) -> None:
        for record in msgspec.msgpack.decode(msgspec.msgpack.encode(records)):
            self._record(record)

    def _record(self, record: list[Any]) -> None:
        first = record[0]
        if first >= 0:
            self._call(first, record[1], record[2], record[3] if len(record) > 3 else [])
        elif first == Record.DEFINE:
            self._kinds[record[1]] = record[2]
        elif first == Record.FREE:
            self.done.extend(("free", handle) for handle in record[1])
        elif first == Record.ASK:
            self._call(record[2], record[3], record[4], record[5])
        elif first == Record.TRACE:
            self.traces[record[1]] = [
                entry if entry[0] < 0 else [self._kinds[entry[0]], *entry[1:]] for entry in record[2]
            ]
        elif first == Record.RUN:
            self._run(*record[1:])
        else:
            self.done.append(("other", *record))

    def _call(self, kind: int | str, out: int, handles: list[int], floats: list[float]) -> None:
        op = self._kinds[kind] if isinstance(kind, int) else kind
        self.done.append((op, out, tuple(handles), tuple(floats)))

    def _run(self, trace: int, base: int, start: int, stop: int, floats: list[float] | None = None) -> None:
        self.runs += 1
        waiting = list(floats or [])
        assert start < stop
        for entry in self.traces[trace][start:stop]:
            handles = [
                (code >> 1) + (base if code & 1 else 0) for code in (entry[1] if entry[0] == Record.FREE else entry[2])
            ]
            if entry[0] == Record.FREE:
                self.done.extend(("free", handle) for handle in handles)
                continue
            own = [waiting.pop(0) if value is None else value for value in (entry[3] if len(entry) > 3 else [])]
            self._call(entry[0], entry[1] + base, handles, own)
        assert not waiting
