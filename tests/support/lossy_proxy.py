"""A proxy for tests: relays one session to executors of its own and kills them when told to.

An executor that ends is told to the guest as `Lost`; the next `Begin` gets a fresh one.  A plan says after how
many of a generation's command frames its executor is killed (None: never; a negative number: the proxy itself goes
after so many), so a test decides where the loss falls; the frame itself may or may not have been done by then.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dgsf.errors import ExecutorCrashed
from dgsf.remoting.executor.local import LocalExecutors, LocalSpec
from dgsf.wire.frames import Frame, FrameReader, Kind, encode_frame
from dgsf.wire.messages import Failure, encode
from dgsf.wire.session import Begin, End, Lost, read_from_guest

_CHUNK = 256 * 1024


class LossyProxy:
    """One session's way; runs in a thread of its own until the guest goes."""

    def __init__(
        self, executors: LocalExecutors, spec: LocalSpec, kills: list[int | None], blame_first: bool = False
    ) -> None:
        self._blame_first = blame_first  # the first kill is told as a crash of the executor's own
        self.guest, self._near = socket.socketpair()
        self.commands = 0  # of this generation
        self.lost = 0
        self.gone = False  # the guest or this proxy itself
        self.frames: list[int] = []  # command frames per generation
        self._executors = executors
        self._spec = spec
        self.kills = list(kills)
        self._far: socket.socket | None = None
        self._far_pid = 0
        self._generation = self._dead = 0
        self._kill_at: int | None = None
        self._from_guest = FrameReader()
        self._thread = threading.Thread(target=self._serve_guest, daemon=True)
        self._back: threading.Thread | None = None
        self._thread.start()

    def kill_now(self) -> None:
        """The present executor dies, wherever it is."""
        os.kill(self._far_pid, signal.SIGKILL)

    def blame_next(self) -> None:
        """The next kill is told as a crash."""
        self._blame_first = True

    def join(self) -> None:
        self._thread.join(30)
        if self._back is not None:
            self._back.join(30)
        self._near.close()

    def _serve_guest(self) -> None:
        try:
            while data := self._near.recv(_CHUNK):
                for frame in self._from_guest.feed(data):
                    self._forward(frame)
        except OSError:
            pass
        finally:
            self.gone = True
            with contextlib.suppress(OSError):
                self._near.shutdown(socket.SHUT_RDWR)
            if self._far is not None:
                with contextlib.suppress(OSError):
                    self._far.shutdown(socket.SHUT_RDWR)

    def _relay_back(self, far: socket.socket, generation: int) -> None:
        """One generation's answers, to its end."""
        frames = WholeFrames()
        try:
            while data := far.recv(_CHUNK):
                for frame in frames.cut(data):
                    self._near.sendall(frame)
        except OSError:
            pass
        if not self.gone:
            self._tell_lost(generation)
        far.close()

    def _tell_lost(self, generation: int) -> None:
        self.lost += 1
        self.frames.append(self.commands)
        self._dead = generation
        lost = Lost(generation, self._cause())
        with contextlib.suppress(OSError):
            self._near.sendall(encode_frame(Kind.SESSION, 0, encode(lost)))

    def _cause(self) -> Failure:
        ended = self._executors.exit_code(self._far_pid)
        first, self._blame_first = self._blame_first, False
        if ended != -signal.SIGKILL or first:
            return Failure(ExecutorCrashed.code, f"the executor ended by {ended}")
        return Failure("worker_crashed", "the executor was killed")

    def _forward(self, frame: Frame) -> None:
        if frame.kind == Kind.SESSION:
            word = read_from_guest(frame.body)
            if isinstance(word, Begin):
                self._begin(word.generation)
            elif not isinstance(word, End):
                return
        if self._far is None or self._dead == self._generation:
            return
        try:
            self._far.sendall(encode_frame(frame.kind, frame.stream, frame.body, frame.flags))
        except OSError:
            return  # its end will be read
        if frame.kind == Kind.COMMAND:
            self.commands += 1
            if self.commands == self._kill_at:
                os.kill(self._far_pid, signal.SIGKILL)
            elif self._kill_at is not None and self.commands == -self._kill_at:
                raise OSError("this proxy goes")

    def _begin(self, generation: int) -> None:
        self._generation = generation
        self._far = self._executors.connect(self._spec)
        self._far_pid = self._executors.pids[-1]
        self.commands = 0
        self._kill_at = self.kills.pop(0) if self.kills else None
        self._back = threading.Thread(target=self._relay_back, args=(self._far, generation), daemon=True)
        self._back.start()


class WholeFrames:
    """Passes on whole frames only: what an executor had half sent when it died is dropped."""

    def __init__(self) -> None:
        self._rest = b""

    def cut(self, data: bytes) -> Iterator[bytes]:
        self._rest += data
        while len(self._rest) >= 12:
            size = 12 + int.from_bytes(self._rest[:4], "little")
            if len(self._rest) < size:
                return
            yield self._rest[:size]
            self._rest = self._rest[size:]


@contextmanager
def lossy_session(executors: LocalExecutors, spec: LocalSpec, kills: list[int | None]) -> Iterator[LossyProxy]:
    proxy = LossyProxy(executors, spec, kills)
    try:
        yield proxy
    finally:
        _end(proxy)


class LossyProxies:
    """One proxy after the other: the next one takes the rest of the plan."""

    def __init__(self, executors: LocalExecutors, spec: LocalSpec, kills: list[int | None], blame_first: bool) -> None:
        self.all = [LossyProxy(executors, spec, kills, blame_first)]
        self.asked_for: list[str] = []  # the sessions that were to be resumed
        self._make = lambda rest: LossyProxy(executors, spec, rest)

    @property
    def guest(self) -> socket.socket:
        return self.all[-1].guest

    def reopen(self, last: str) -> socket.socket:
        self.asked_for.append(last)
        self.all.append(self._make(self.all[-1].kills))
        return self.guest


@contextmanager
def lossy_sessions(
    executors: LocalExecutors, spec: LocalSpec, kills: list[int | None], blame_first: bool = False
) -> Iterator[LossyProxies]:
    proxies = LossyProxies(executors, spec, kills, blame_first)
    try:
        yield proxies
    finally:
        for proxy in proxies.all:
            _end(proxy)


def _end(proxy: LossyProxy) -> None:
    with contextlib.suppress(OSError):
        proxy.guest.shutdown(socket.SHUT_RDWR)
    proxy.guest.close()
    proxy.join()
