"""The life of a session's worker: frames in, machine, answers out, until the connection ends.

Command frames carry numbers without gaps; one out of order, and anything else that makes no sense, is told in
an answer that nobody asked for and ends the session.  While a record waits for bytes, later frames are held.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import msgspec
import torch

from dgsf.errors import ConnectionLost, DgsfError, ProtocolError
from dgsf.heap import KeptHeap, keep_freed_memory
from dgsf.remoting.executor.allow import allowed
from dgsf.remoting.executor.answers import Answers
from dgsf.remoting.executor.contents import Contents
from dgsf.remoting.executor.limits import Limits, refuse_over
from dgsf.remoting.executor.machine import Machine
from dgsf.remoting.executor.opening import open_device
from dgsf.remoting.executor.state import Arriving, leaving
from dgsf.remoting.executor.wires import Incoming, Wires
from dgsf.remoting.protocol import COMMAND_BYTES, Status
from dgsf.wire.frames import FLAG_BULK, FLAG_MORE, Kind

CONTENTS_MOUNT = "/dgsf/contents"
EXIT_REFUSED = 76
KEPT_BYTES = 256 * 1024 * 1024  # of free memory; activations come and go with every step
HOLES_SHARE = 4  # of the lease: so much may be free between tensors, in memory that is counted for the process
_decode = msgspec.msgpack.Decoder().decode
allowed()  # the list is made where the zygote imports this, once for all of its workers


class Spec(Protocol):
    """What a session's worker needs to know of itself; dgsf.fabric.spec.WorkerSpec is one."""

    @property
    def memory_bytes(self) -> int: ...

    @property
    def device_kind(self) -> str: ...

    @property
    def device_options(self) -> dict[str, Any]: ...


class Session:
    """One session over one connection."""

    def __init__(self, connection: socket.socket, machine: Machine, tell_usage: bool = True) -> None:
        self._wires = Wires(connection)
        self._machine = machine
        self._answers = machine.answers = Answers(self._wires, machine.usage, tell_usage)
        self._next = 1  # the number that the next command frame must have
        self._held: deque[tuple[int, list[Any], int]] = deque()  # frame, its records, where to go on
        self._held_bytes = 0
        self._begun = bytearray()  # a body that goes on in the next frame
        self._arriving: Arriving | None = None  # the state of a session that moves here
        if tell_usage:
            self._wires.idle = machine.tell_usage_idle

    def bound_heap(self) -> None:
        """In a process that is the session's own: what it keeps of freed memory is bounded by the lease."""
        heap = KeptHeap(self._machine.limits.memory_bytes // HOLES_SHARE)
        self._machine.memory.look = heap.look
        tell_usage = self._wires.idle or (lambda: None)

        def idle() -> None:
            tell_usage()
            heap.look()

        self._wires.idle = idle

    def serve(self) -> None:
        """Until the connection ends (ConnectionLost) or a rule is broken."""
        sink = self._machine.arrivals.transfers.sink
        try:
            while True:
                self.take(self._wires.next(sink))
        except ConnectionLost:
            raise
        except DgsfError as error:
            self._answers.frame = 0
            self._answers.answer(0, Status.FAILED, [0, error.code, error.message])
            raise

    def take(self, frame: Incoming) -> None:
        """One frame of any kind."""
        if frame.kind == Kind.COMMAND:
            self._command(frame)
        elif frame.kind == Kind.STATE:
            self._state(frame)
        elif frame.kind == Kind.PING:
            self._wires.send((int(Kind.PONG), 0, frame.stream, b""))
        else:
            self.other(frame)

    def other(self, frame: Incoming) -> None:
        raise ProtocolError(f"an executor does not take frames of kind {frame.kind}")

    def _command(self, frame: Incoming) -> None:
        if frame.stream != self._next:
            raise ProtocolError(f"command frame {frame.stream} came where {self._next} was expected")
        self._next = (self._next + 1) & 0xFFFFFFFF
        if frame.flags & FLAG_BULK:
            if self._begun:
                raise ProtocolError("bulk bytes in the middle of a command")
            _or_refuse("a transfer cannot be used", self._machine.arrivals.transfers.arrived, frame.transfer)
        elif self._begun or frame.flags & FLAG_MORE:
            self._piece(frame)
        else:
            self._body(frame.stream, frame.body)
        if self._held and self._machine.arrivals.ready():
            self._go_on()

    def _piece(self, frame: Incoming) -> None:
        """Of a body that is too long for a frame."""
        refuse_over(len(self._begun) + len(frame.body), COMMAND_BYTES, "bytes of one command")
        self._begun += frame.body
        if not frame.flags & FLAG_MORE:
            body, self._begun = memoryview(self._begun), bytearray()
            self._body(frame.stream, body)

    def _body(self, number: int, body: memoryview) -> None:
        if self._held:
            self._hold(number, _records(body), 0, len(body))
        else:
            self._execute(number, _records(body), 0)

    # --- moving
    def _state(self, frame: Incoming) -> None:
        if self._arriving is not None or (self._next == 1 and len(frame.body)):
            self._arrive(frame)
        elif len(frame.body):
            raise ProtocolError("a state can only come before the first command")
        elif self._held or self._begun or len(self._machine.arrivals.transfers):
            self._wires.send((int(Kind.STATE), 0, 0, b""))  # not now
        else:
            self._leave()

    def _arrive(self, frame: Incoming) -> None:
        if self._arriving is None:
            self._arriving = Arriving(self._machine)
        _or_refuse("a moving session cannot be read", self._arriving.take, frame.body)
        if not frame.flags & FLAG_MORE:
            self._next, self._arriving = self._arriving.become(), None
            self._wires.send((int(Kind.STATE), 0, 0, b""))

    def _leave(self) -> None:
        """Hand over everything, then wait for the end."""
        self._machine.device.finish()
        self._answers.usage()
        pieces = list(leaving(self._machine, self._next))
        for place, piece in enumerate(pieces):
            self._wires.send((int(Kind.STATE), FLAG_MORE if place + 1 < len(pieces) else 0, 0, piece))
        self._wires.idle = None
        self._wires.next(self._machine.arrivals.transfers.sink)
        raise ProtocolError("a command after the session has moved")

    # --- commands that can or cannot be done yet
    def _execute(self, number: int, records: list[Any], position: int) -> bool:
        """Whether all of it could be done."""
        self._answers.frame = number
        position = self._machine.execute(records, position)
        if position < len(records):
            self._held.appendleft((number, records, position))
            self._look_ahead(records, position + 1)
            return False
        return True

    def _go_on(self) -> None:
        while self._held:
            if not self._execute(*self._held.popleft()):
                return
        self._held_bytes = 0

    def _hold(self, number: int, records: list[Any], position: int, size: int) -> None:
        self._held_bytes += size
        refuse_over(self._held_bytes, self._machine.limits.queued_bytes, "bytes of waiting commands")
        self._held.append((number, records, position))
        self._look_ahead(records, position)

    def _look_ahead(self, records: list[Any], start: int) -> None:
        _or_refuse("a record cannot be read", self._machine.arrivals.look_ahead, records, start)


def _or_refuse(what: str, do: Callable[..., None], *args: Any) -> None:
    """Do it; whatever it meets that has no type of ours, also that there is no memory for it, ends the session."""
    try:
        do(*args)
    except DgsfError:
        raise
    except Exception as error:
        raise ProtocolError(f"{what}: {type(error).__name__}: {error}"[:300]) from error


def _records(body: memoryview) -> list[Any]:
    try:
        records = _decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise ProtocolError(f"not MessagePack: {error}") from error
    if type(records) is not list:
        raise ProtocolError("a command is an array of records")
    return records


def prepare_process(options: dict[str, Any]) -> None:
    """Torch's settings for a process that does nothing but execute."""
    warnings.simplefilter("ignore")  # torch's warnings are for people who write code; nobody reads them here
    torch.set_grad_enabled(True)  # nothing records it here; but the fused LSTM keeps what its way back needs only so
    keep_freed_memory(KEPT_BYTES)
    gc.freeze()  # what was imported stays; the collector need not look at it again and again
    if options.get("threads"):
        torch.set_num_threads(int(options["threads"]))


def new_machine(spec: Spec, folder: str = "") -> Machine:
    """The machine of a session on the device that the spec names."""
    device = open_device(spec.device_kind, spec.device_options)
    return Machine(device, Limits(memory_bytes=spec.memory_bytes), Contents(folder, spec.memory_bytes))


def run(session: Session) -> int:
    """Serve; the process's exit code."""
    session.bound_heap()
    try:
        with torch._C._AutoDispatchBelowAutograd():
            session.serve()
    except ConnectionLost:
        return 0  # the proxy gave this worker back
    except DgsfError:
        return EXIT_REFUSED
    return 0


def serve(control: socket.socket, connection: socket.socket, spec: Spec) -> NoReturn:
    """The whole life of a session's worker, up to the end of its process."""
    code = 1
    try:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # it stops calls of functions; a session has none
        connection.setblocking(True)
        prepare_process(spec.device_options)
        folder = CONTENTS_MOUNT if os.path.isdir(CONTENTS_MOUNT) else ""
        code = run(Session(connection, new_machine(spec, folder)))
    finally:
        os._exit(code)
