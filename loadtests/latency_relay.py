"""Adds a fixed one-way delay to a connection, in both directions, and counts what passes.

A process of its own sits between two sockets: what arrives is stamped with the time it is due and sent on then,
so bandwidth stays and only latency is added.  A round trip is counted when bytes come back after bytes went
out.  The delay can be changed while it runs.  For measurements and tests of remoting without a network.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Self

from dgsf.fabric.sandbox.libc import PR_SET_TIMERSLACK, prctl
from dgsf.turns import ask_for_short_turns

_CHUNK = 256 * 1024
_QUEUE_BYTES = 64 * 1024 * 1024
_WORD_BYTES = 4096  # what is said on the control socket is shorter
_SPIN_SECONDS = 100e-6  # a select wakes late by about this; the rest is waited for actively
_TIMER_SLACK_NS = 1  # by default the kernel wakes a sleeper up to 50 µs late, to wake several at once


@dataclass
class Passed:
    """Since the start."""

    bytes_out: int = 0
    bytes_back: int = 0
    round_trips: int = 0


class LatencyRelay:
    """The starter's side: `guest` is the near end; `passed` asks the relay for its counts, `delay` sets its delay."""

    def __init__(self, far: socket.socket, delay_seconds: float, spin_seconds: float = _SPIN_SECONDS) -> None:
        """Without spinning it takes no processor from its ends, and is late by what a sleeper's waking takes."""
        self.guest, near = socket.socketpair()
        self._control, theirs = socket.socketpair()
        fds = [near.fileno(), far.fileno(), theirs.fileno()]
        numbers = map(str, (delay_seconds, spin_seconds, *fds))
        with near, theirs:
            self._process = subprocess.Popen([sys.executable, "-m", "loadtests.latency_relay", *numbers], pass_fds=fds)
        far.close()
        self._control.recv(1)

    def passed(self) -> Passed:
        self._control.send(b"?")
        return Passed(**json.loads(self._control.recv(_WORD_BYTES)))

    def delay(self, seconds: float) -> None:
        """From now on, for what arrives; what is under way arrives as it would have."""
        self._control.send(str(seconds).encode())
        self._control.recv(_WORD_BYTES)

    def close(self) -> None:
        self._control.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


class Direction:
    """One way: bytes wait in a queue until they are due."""

    def __init__(self, source: socket.socket, target: socket.socket, delay: float) -> None:
        source.setblocking(False)
        self.source = source
        self.target = target
        self.open = True
        self.delay = delay
        self._queue: deque[tuple[float, memoryview]] = deque()
        self._waiting = 0

    @property
    def hungry(self) -> bool:
        return self.open and self._waiting < _QUEUE_BYTES

    def take(self, now: float) -> int:
        """Reads what is there; 0 at the end."""
        try:
            data = self.source.recv(_CHUNK)
        except BlockingIOError:
            return -1
        except OSError:
            data = b""
        if not data:
            self.open = False
        else:
            self._queue.append((now + self.delay, memoryview(data)))
            self._waiting += len(data)
        return len(data)

    def due(self) -> float | None:
        return self._queue[0][0] if self._queue else None

    def pass_on(self, now: float) -> bool:
        """Sends what is due; True if the target takes no more for now."""
        while self._queue and self._queue[0][0] <= now:
            due, data = self._queue[0]
            try:
                count = self.target.send(data)
            except BlockingIOError:
                return True
            except OSError:
                self.open = False
                self._queue.clear()
                return False
            self._waiting -= count
            if count < len(data):
                self._queue[0] = (due, data[count:])
            else:
                self._queue.popleft()
        return False

    @property
    def over(self) -> bool:
        return not self.open and not self._queue


def relay(delay: float, spin: float, near: socket.socket, far: socket.socket, control: socket.socket) -> None:
    """Until one side is closed and everything has been passed on, or nobody asks any more."""
    out, back = Direction(near, far, delay), Direction(far, near, delay)
    passed, going_out = Passed(), False
    control.send(b"!")
    while not out.over and not back.over:
        stuck = [way for way in (out, back) if way.pass_on(time.monotonic())]
        readable = _wait([out, back], stuck, control, spin)
        now = time.monotonic()
        if near in readable and (count := out.take(now)) > 0:
            passed.bytes_out += count
            going_out = True
        if far in readable and (count := back.take(now)) > 0:
            passed.bytes_back += count
            passed.round_trips += going_out
            going_out = False
        if control in readable:
            word = control.recv(_WORD_BYTES)
            if not word:
                return
            if word != b"?":
                out.delay = back.delay = float(word)
            control.send(json.dumps(asdict(passed)).encode())


def _wait(ways: list[Direction], stuck: list[Direction], control: socket.socket, spin: float) -> list[socket.socket]:
    dues = [due for way in ways if way not in stuck and (due := way.due()) is not None]
    timeout = max(0.0, min(dues) - time.monotonic() - spin) if dues else None
    sources = [way.source for way in ways if way.hungry]
    ready, _, _ = select.select([*sources, control], [way.target for way in stuck], [], timeout)
    return ready


def _go_first() -> None:
    """A wire does not wait for a processor: behind a program that computes, 0.5 ms became 2."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        ask_for_short_turns()


def main() -> None:
    delay, spin = map(float, sys.argv[1:3])
    near, far, control = (socket.socket(fileno=int(number)) for number in sys.argv[3:6])
    prctl(PR_SET_TIMERSLACK, _TIMER_SLACK_NS)
    _go_first()
    os.sched_setaffinity(0, range(os.cpu_count() or 1))  # its starter may be kept to one processor; the way is not
    with near, far, control:
        relay(delay, spin, near, far, control)


if __name__ == "__main__":
    main()
