"""The benchmark's peer of a remoted program: the same commands on the same device, in one process.

A recording is what an executor was sent (LocalSpec.record): frames as they came.  Playing it does the same launches
on the same simulated device without guest and wire; everything is read and decoded before the clock starts.
What is told is when each answer would have been given, so the time between two answers is a native iteration.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch

from dgsf.remoting.executor.answers import Answers
from dgsf.remoting.executor.loop import Spec, new_machine
from dgsf.remoting.executor.machine import Machine
from dgsf.remoting.executor.wires import Wires
from dgsf.remoting.protocol import BULK_HEADER, Status
from dgsf.wire.frames import FLAG_BULK, FLAG_MORE, FrameReader, Kind

_decode = msgspec.msgpack.Decoder().decode


@dataclass(frozen=True, slots=True)
class Step:
    """A command frame: records, or bulk bytes of a transfer."""

    records: list[Any] | None
    transfer: int = 0
    data: bytes = b""


def read(path: Path) -> list[Step]:
    """A recording, decoded."""
    return list(_steps(path.read_bytes()))


def _steps(data: bytes) -> Iterator[Step]:
    begun = b""
    for frame in FrameReader().feed(data):
        if frame.kind != Kind.COMMAND:
            continue
        if frame.flags & FLAG_BULK:
            (transfer,) = BULK_HEADER.unpack_from(frame.body)
            yield Step(None, transfer, frame.body[BULK_HEADER.size :])
        elif frame.flags & FLAG_MORE:
            begun += frame.body
        else:
            body, begun = begun + frame.body, b""
            yield Step(_decode(body))


class _Silent(Answers):
    """Notes when something would be answered, and says nothing."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(_NO_WIRES, machine.usage, tell_usage=False)
        self.times: list[float] = []

    def answer(self, request: int, status: Status, content: Any) -> None:
        if request:
            self.times.append(time.perf_counter())

    def bulk(self, request: int, data: memoryview, frame: int | None = None) -> None:
        """Native programs have it in their memory already."""


_NO_WIRES: Wires = object.__new__(Wires)


def play(steps: list[Step], spec: Spec) -> list[float]:
    """The moments at which each answer was ready."""
    machine = new_machine(spec)
    machine.answers = silent = _Silent(machine)
    waiting: list[tuple[list[Any], int]] = []
    with torch._C._AutoDispatchBelowAutograd():
        for step in steps:
            if step.records is None:
                _fill(machine, step)
            elif waiting:
                machine.arrivals.look_ahead(step.records, 0)
                waiting.append((step.records, 0))
            else:
                _do(machine, step.records, 0, waiting)
            while waiting and machine.arrivals.ready():
                _do(machine, *waiting.pop(0), waiting)
    return silent.times


def _do(machine: Machine, records: list[Any], position: int, waiting: list[tuple[list[Any], int]]) -> None:
    stopped = machine.execute(records, position)
    if stopped < len(records):
        waiting.insert(0, (records, stopped))
        machine.arrivals.look_ahead(records, stopped + 1)


def _fill(machine: Machine, step: Step) -> None:
    transfers = machine.arrivals.transfers
    transfers.sink(step.transfer, len(step.data))[:] = step.data
    transfers.arrived(step.transfer)
