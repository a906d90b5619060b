"""TRACE and RUN: templates of calls and frees, prepared once and done in a tight loop.

A template's kinds are those that are defined when it comes.  Handles in it are the very ones or count from the
base of the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from dgsf.errors import ProtocolError
from dgsf.remoting.executor.kinds import Prepared, Returns
from dgsf.remoting.executor.limits import refuse_over
from dgsf.remoting.protocol import Record

if TYPE_CHECKING:
    from dgsf.remoting.executor.machine import Machine

USAGE_NS = 50_000_000


class Handles:
    """The handles of an entry: value + base * times each; those that never move are looked up in one go."""

    __slots__ = ("_codes", "_fixed", "_get", "_written", "_written_moving")

    def __init__(self, codes: list[int], writes: Sequence[int]) -> None:
        self._codes = tuple([(code >> 1, code & 1) for code in codes])
        self._fixed = not any(times for _, times in self._codes)
        self._get = itemgetter(*[value for value, _ in self._codes]) if self._fixed and len(codes) > 1 else None
        written = [self._codes[place] for place in writes if place < len(codes)]
        self._written = frozenset(value for value, times in written if not times)
        self._written_moving = tuple([value for value, times in written if times])

    def all(self, base: int) -> list[int]:
        """The handles of a run from this base."""
        return [value + base * times for value, times in self._codes]

    def tensors(self, tensors: dict[int, Any], base: int) -> Sequence[Any]:
        """What they name; KeyError if one names nothing."""
        if self._get is not None:
            found: Sequence[Any] = self._get(tensors)
            return found
        return [tensors[value + base * times] for value, times in self._codes]

    def note_written(self, written: set[int], base: int) -> None:
        if self._written:
            written |= self._written
        for value in self._written_moving:
            written.add(value + base)


class Entry(NamedTuple):
    """A call, or frees if `kind` is None."""

    kind: Prepared | None
    out: int
    handles: Handles
    floats: list[Any]
    holes: tuple[int, ...]  # which floats the run gives


class Traces:
    """The templates of a session."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._traces: dict[int, list[Entry]] = {}
        self._templates: dict[int, list[Any]] = {}
        self._entries = 0
        self.records: dict[int, Callable[..., Any]] = {Record.TRACE: self.define, Record.RUN: self._run}

    def templates(self) -> dict[int, list[Any]]:
        """As they were defined, for another executor."""
        return self._templates

    def define(self, number: int, template: list[list[Any]]) -> None:
        limits = self._machine.limits
        self._entries += len(template) - len(self._traces.pop(number, ()))
        refuse_over(self._entries, limits.trace_entries, "entries of traces")
        self._traces[number] = [self._entry(record) for record in template]
        self._templates[number] = template
        refuse_over(len(self._traces), limits.traces, "traces")

    def _entry(self, record: list[Any]) -> Entry:
        if record[0] == Record.FREE:
            return Entry(None, 0, Handles(record[1], ()), [], ())
        number, out, codes, *rest = record
        kind = self._machine.kinds.get(number)
        if kind is None or type(out) is not int or len(rest) > 1:
            raise ProtocolError("an entry of a trace is a call of a defined kind or a FREE")
        floats = list(rest[0]) if rest else []
        holes = tuple(place for place, value in enumerate(floats) if value is None)
        return Entry(kind, out, Handles(codes, kind.writes), floats, holes)

    def _run(self, number: int, base: int, start: int, stop: int, floats: Sequence[float] = ()) -> None:
        entries = self._traces[number]
        if not 0 <= start <= stop <= len(entries) or type(base) is not int:
            raise ProtocolError(f"entries {start} to {stop} of a trace of {len(entries)}")
        given = iter(floats)
        machine = self._machine
        tensors, memory, written = machine.handles.tensors, machine.memory, machine.changes.handles
        clock = time.perf_counter_ns
        for kind, out, names, own, holes in entries[start:stop] if start or stop < len(entries) else entries:
            if kind is None:
                for handle in names.all(base):
                    tensor = tensors.pop(handle, None)
                    if written and handle in written:
                        machine.changes.freed(handle, tensor)
                continue
            machine.calls += 1
            values = _filled(own, holes, given) if holes else own
            try:
                result = kind.call(names.tensors(tensors, base), values)
                if kind.returns is Returns.TENSOR:
                    tensors[base + out] = result
                    if kind.makes_memory:
                        memory.room -= result.nbytes
                        if memory.room < 0:
                            memory.check(result.nbytes)
                elif kind.returns is Returns.MIXED or kind.makes_memory:
                    machine.keep(kind, base + out, result, names.all(base))
                if kind.writes:
                    names.note_written(written, base)
            except Exception as error:
                machine.failed(error, kind, base + out, names.all(base))
            if clock() - machine.told_ns > USAGE_NS:
                machine.tell_usage()


def _filled(own: list[Any], holes: tuple[int, ...], given: Any) -> list[Any]:
    values = own.copy()
    for place in holes:
        values[place] = next(given, None)
        if values[place] is None:
            raise ProtocolError("a run has fewer floats than holes")
    return values
