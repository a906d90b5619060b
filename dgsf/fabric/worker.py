"""What a worker process does: load one function, then run its calls one after the other.

It begins inside the sandbox, a fork of the zygote, with two sockets: the connection that the device
server accepted from a proxy, and a control socket on which the device server asks it to stop a call
(followed by SIGUSR1).  It holds no secrets.  Two rules that the proxy relies on: the END of a call is
written before the next call starts, so when a worker dies only the first unanswered call can have
begun; and a frame with a lower lease epoch than one seen before is refused.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

from dgsf.core.sizes import describe_bytes
from dgsf.errors import (
    ConnectionLost,
    DgsfError,
    FunctionCancelled,
    FunctionLoadError,
    FunctionTimeout,
    LeaseLost,
    ProtocolError,
    ResultTooLarge,
)
from dgsf.fabric.calling import UserRaised, caller_of, failure_of, run_function, write_result
from dgsf.fabric.remote_device import RemoteDevice, remote_device
from dgsf.fabric.spec import SHARED_MOUNT, Stop, WorkerSpec
from dgsf.sdk.unbundle import load_function
from dgsf.wire.blocking import FrameSocket
from dgsf.wire.frames import Frame, Kind
from dgsf.wire.messages import (
    Carrier,
    Failure,
    Load,
    Loaded,
    Ref,
    Run,
    RunEnd,
    clip_failure,
    encode,
    join,
    reader,
    split,
)
from dgsf.wire.recycle import FilePool, write_all

OUTPUT_LIMIT = 16 * 1024
_read_load, _read_run, _read_stop = reader(Load), reader(Run), reader(Stop)
_STOP_ERRORS: dict[str, type[DgsfError]] = {"timeout": FunctionTimeout, "cancel": FunctionCancelled}


class Stopped(BaseException):
    """Raised inside the user's code when its call is to stop; not an Exception, so `except Exception` lets it by."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Worker:
    """One function instance and its connection."""

    def __init__(self, control: socket.socket, connection: socket.socket, spec: WorkerSpec) -> None:
        connection.setblocking(True)
        control.setblocking(False)
        self._control = control
        self._frames = FrameSocket(connection)
        self._sharing = connection.family == socket.AF_UNIX
        self._epoch = spec.epoch
        self._spec = spec
        self._device: RemoteDevice | None = None
        self._function: Callable[..., Any] | None = None
        self._limits = (0, 0)
        self._running: bytes | None = None
        self._output = io.StringIO()
        self._results = FilePool(SHARED_MOUNT, 0o600)

    def serve(self) -> None:
        signal.signal(signal.SIGUSR1, self._on_stop_signal)
        sys.stdout = sys.stderr = _Tail(self._output)
        while True:
            frame = self._frames.next()
            if frame.kind == Kind.OPEN:
                self._run(frame)
            elif frame.kind == Kind.LOAD:
                self._load(frame)
            elif frame.kind == Kind.PING:
                self._frames.send(Kind.PONG, frame.stream)
            elif frame.kind not in (Kind.CANCEL, Kind.CREDIT):  # late ones of a call that is over
                raise ProtocolError(f"a worker does not take frames of kind {frame.kind}")

    # --- load
    def _load(self, frame: Frame) -> None:
        load, inline = split(frame.body, _read_load)
        self._limits = (load.inline_bytes, load.max_result_bytes)
        code = self._payload(frame.stream, load.code, inline)
        failure = None
        try:
            self._device = remote_device(self._control, self._spec, load.device_alias)
            self._function = caller_of(load_function(code))
        except BaseException as error:
            failure = _load_failure(error, network=self._spec.network)
        self._frames.send(Kind.LOADED, frame.stream, encode(Loaded(failure)))

    # --- run
    def _run(self, frame: Frame) -> None:
        run, inline = split(frame.body, _read_run)
        if run.epoch < self._epoch:
            self._end(frame.stream, 0, Failure.of(LeaseLost("a frame of an older lease")))
            return
        self._epoch = run.epoch
        data = self._payload(frame.stream, run.payload, inline)
        started = time.perf_counter_ns()
        try:
            codec, result = self._call(run, data)
        except BaseException as error:
            self._end(frame.stream, _since(started), self._failure(error))
            return
        self._answer(frame.stream, _since(started), codec, result)

    def _call(self, run: Run, data: bytes) -> tuple[int, bytes]:
        if self._function is None:
            raise ProtocolError("a call before the function was loaded")
        try:
            self._running = run.call
            try:
                value = run_function(self._function, run.payload.codec, data)
                written = write_result(value, run.reply, self._limits[1])
                del value  # what it held of the device is free before the next call
            except Exception:
                self._finish_on_device(quietly=True)
                raise
            self._finish_on_device()
            return written
        finally:
            self._running = None

    def _finish_on_device(self, quietly: bool = False) -> None:
        """Device commands that still wait belong to this call, and so do their errors, unless it has one already."""
        if self._device is None:
            return
        try:
            self._device.finish_call()
        except Exception as error:
            if not quietly:
                raise (UserRaised(error) if isinstance(error, DgsfError) else error) from None

    def _failure(self, error: BaseException) -> Failure:
        if isinstance(error, Stopped):
            return Failure.of(_STOP_ERRORS.get(error.reason, FunctionCancelled)())
        return failure_of(error, self._take_output(), network=self._spec.network)

    def _answer(self, stream: int, run_us: int, codec: int, result: bytes) -> None:
        size = len(result)
        if size <= self._limits[0]:
            self._frames.send(Kind.END, stream, join(RunEnd(run_us, Ref(codec, Carrier.inline, size)), result))
        elif self._sharing:
            try:
                name = self._leave(result)
            except OSError as error:
                self._end(stream, run_us, Failure.of(_no_room(size, error)))
                return
            self._frames.send(Kind.END, stream, join(RunEnd(run_us, Ref(codec, Carrier.shared, size, name))))
        else:
            self._frames.send_chunks(stream, result)
            self._frames.send(Kind.END, stream, join(RunEnd(run_us, Ref(codec, Carrier.chunks, size))))
        if self._output.tell():
            self._take_output()

    def _end(self, stream: int, run_us: int, failure: Failure) -> None:
        self._frames.send(Kind.END, stream, join(RunEnd(run_us, Ref(), failure)))

    # --- helpers
    def _payload(self, stream: int, ref: Ref, inline: bytes) -> bytes:
        if ref.carrier == Carrier.inline:
            return inline
        if ref.carrier == Carrier.chunks:
            return self._frames.receive_chunks(stream, ref.size)
        path = os.path.join(SHARED_MOUNT, os.path.basename(ref.name))
        with open(path, "rb") as file:
            data = file.read()
        with contextlib.suppress(OSError):
            os.unlink(path)
        return data

    def _leave(self, result: bytes) -> str:
        """Put a large result where the proxy can see it."""
        name = secrets.token_hex(12)
        path = os.path.join(SHARED_MOUNT, name)
        descriptor = self._results.file_for(path)
        try:
            write_all(descriptor, result)
        except OSError:
            os.unlink(path)
            raise
        finally:
            os.close(descriptor)
        self._results.trim()
        return name

    def _take_output(self) -> str:
        text = self._output.getvalue()
        self._output.seek(0)
        self._output.truncate()
        return text

    def _on_stop_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Runs in the main thread between two bytecodes: stops the call that is meant, if it still runs."""
        for stop in _messages(self._control):
            if self._running is not None and stop.call == self._running:
                self._running = None
                raise Stopped(stop.reason)


class _Tail(io.TextIOBase):
    """Keeps the end of what the function prints, to be shown with a failure."""

    def __init__(self, buffer: io.StringIO) -> None:
        self._buffer = buffer

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        buffer = self._buffer
        buffer.write(text[-OUTPUT_LIMIT:])
        if buffer.tell() > 2 * OUTPUT_LIMIT:
            kept = buffer.getvalue()[-OUTPUT_LIMIT:]
            buffer.seek(0)
            buffer.truncate()
            buffer.write(kept)
        return len(text)


def _messages(control: socket.socket) -> Iterator[Stop]:
    with contextlib.suppress(BlockingIOError):
        while data := control.recv(65536):
            yield _read_stop(data)


def _since(started_ns: int) -> int:
    return (time.perf_counter_ns() - started_ns) // 1000


def _no_room(size: int, error: OSError) -> ResultTooLarge:
    return ResultTooLarge(
        f"there is no room in shared memory for a result of {describe_bytes(size)}: {error.strerror}", size=size
    )


def _load_failure(error: BaseException, *, network: bool) -> Failure:
    if isinstance(error, FunctionLoadError):
        return clip_failure(Failure.of(error))
    described = failure_of(error, network=network)
    message = f"the function cannot be loaded: {described.message}"
    return clip_failure(Failure(FunctionLoadError.code, message, described.details))


def serve(control: socket.socket, connection: socket.socket, spec: WorkerSpec) -> NoReturn:
    """The whole life of a worker, up to the end of its process: a function's, or a session's executor."""
    code = 0
    try:
        if spec.role == "session":
            from dgsf.remoting.executor.loop import serve as execute  # loads torch: only where it is used

            execute(control, connection, spec)
        else:
            Worker(control, connection, spec).serve()
    except ConnectionLost:
        code = 0  # the proxy gave this worker back
    except ProtocolError:
        code = 76
    finally:
        os._exit(code)
