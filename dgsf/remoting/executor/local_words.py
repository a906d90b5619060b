"""A session that answers the guest's SESSION words itself, for executors without a proxy."""

from __future__ import annotations

import socket
from typing import Any, Protocol

from dgsf.errors import ConnectionLost, DgsfError
from dgsf.remoting.executor.callclock import CallClock
from dgsf.remoting.executor.loop import Session
from dgsf.remoting.executor.machine import Machine
from dgsf.remoting.executor.wires import Incoming
from dgsf.remoting.protocol import BULK_HEADER
from dgsf.wire.frames import FLAG_BULK, HEADER, Kind
from dgsf.wire.messages import Failure, encode
from dgsf.wire.session import Began, Begin, End, Ended, read_from_guest


class _Spec(Protocol):
    @property
    def device_kind(self) -> str: ...

    @property
    def memory_bytes(self) -> int: ...

    @property
    def device_options(self) -> dict[str, Any]: ...

    @property
    def usage(self) -> bool: ...

    @property
    def record(self) -> str: ...

    @property
    def clock(self) -> str: ...


class LocalSession(Session):
    """Begin is answered with Began, End with Ended."""

    def __init__(self, connection: socket.socket, machine: Machine, spec: _Spec, identity: bytes) -> None:
        super().__init__(connection, machine, spec.usage)
        self._spec = spec
        self._identity = identity
        self._record = open(spec.record, "wb") if spec.record else None  # noqa: SIM115 (as long as the process)
        self._clock = CallClock(machine, open(spec.clock, "wb")) if spec.clock else None  # noqa: SIM115 (the same)

    def take(self, frame: Incoming) -> None:
        if self._record is not None and frame.kind == Kind.COMMAND:
            self._write_down(frame)
        if self._clock is None:
            return super().take(frame)
        self._clock.wake()
        super().take(frame)
        return self._clock.write()

    def _write_down(self, frame: Incoming) -> None:
        assert self._record is not None
        body: bytes | memoryview = frame.body
        if frame.flags & FLAG_BULK:
            body = BULK_HEADER.pack(frame.transfer) + frame.body
        self._record.write(HEADER.pack(len(body), frame.kind, frame.flags, 0, frame.stream))
        self._record.write(body)
        self._record.flush()

    def serve(self) -> None:
        try:
            super().serve()
        except ConnectionLost:
            raise
        except DgsfError as error:
            self._say(Ended(Failure.of(error)))
            raise

    def other(self, frame: Incoming) -> None:
        if frame.kind != Kind.SESSION:
            return super().other(frame)
        word = read_from_guest(bytes(frame.body))
        if isinstance(word, Begin):
            spec = self._spec
            name = f"local/{spec.device_kind}0"
            kind = spec.device_kind
            self._say(Began(self._identity, word.generation, name, kind, kind, spec.memory_bytes))
        elif isinstance(word, End):
            self._say(Ended())
            raise ConnectionLost("the guest is done")
        return None

    def _say(self, word: Began | Ended) -> None:
        self._wires.send((int(Kind.SESSION), 0, 0, encode(word)))
