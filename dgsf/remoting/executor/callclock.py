"""How long each call took on the device, for profiles; only executors without a platform have one.

Every call is waited for, so a device that works behind its launches loses that overlap while it is profiled.
A file gets three numbers per call: which call, nanoseconds of the device, nanoseconds of the executor itself before
it (reading, preparing, freeing).  The file is complete up to a question when the next question is answered.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from dgsf.remoting.executor.kinds import Prepared
from dgsf.remoting.executor.machine import Machine

_WORD = "q"
_FIELDS = 3


class Took(NamedTuple):
    """Of one call, in nanoseconds."""

    device_ns: int
    serve_ns: int


class CallClock:
    """Notes the calls of one machine; `wake` when a frame came, `write` when it is done."""

    def __init__(self, machine: Machine, file: BinaryIO) -> None:
        self._file = file
        self._noted = array(_WORD)
        self._last = time.perf_counter_ns()  # since when this process has worked without waiting for a frame
        _clock_calls(machine, self)

    def wake(self) -> None:
        self._last = time.perf_counter_ns()

    def note(self, call: int, began: int, ended: int) -> None:
        self._noted.extend((call, ended - began, began - self._last))
        self._last = ended

    def write(self) -> None:
        if self._noted:
            self._file.write(self._noted.tobytes())
            self._file.flush()
            self._noted = array(_WORD)


def _clock_calls(machine: Machine, clock: CallClock) -> None:
    """From now on kinds of this machine's device are prepared with a clock around the call."""
    device, base = machine.device, machine.device.prepared

    def call(self: Prepared, tensors: list[Any], floats: Sequence[float]) -> Any:
        began = time.perf_counter_ns()
        try:
            return base.call(self, tensors, floats)
        finally:
            device.finish()
            clock.note(machine.calls, began, time.perf_counter_ns())

    setattr(device, "prepared", type(f"Clocked{base.__name__}", (base,), {"__slots__": (), "call": call}))  # noqa: B010 - read-only in the protocol


class ClockReader:
    """What such a file tells; what was read once is not read again, however long the file grows."""

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._read = 0

    def new(self) -> dict[int, Took]:
        """By the number of the call, those since the last time."""
        words = array(_WORD)
        size = words.itemsize * _FIELDS
        with self._path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        words.frombytes(data[: len(data) // size * size])
        self._read += len(words) * words.itemsize
        return {words[at]: Took(words[at + 1], words[at + 2]) for at in range(0, len(words), _FIELDS)}
