"""Runs a program on a remote device of its own, on this machine, and records what it does with it.

One executor process without a platform; its clock times every call, the guest's side is noted by a
`RecordingStream`.  Nothing is predicted here: a run becomes a `Recording` and a measured `Link`.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from dgsf.config import GIB
from dgsf.core.perfmodel import Link, Recording, fitted
from dgsf.remoting.executor.callclock import ClockReader
from dgsf.remoting.executor.local import LocalExecutors, LocalSpec
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.bound import bound
from dgsf.remoting.guest.modes import Modes
from dgsf.remoting.guest.probe import measure_link
from dgsf.remoting.guest.recording import Event, RecordingStream, Took, mean_serve_us, recording_of, waited_ns
from dgsf.remoting.guest.session_stream import SessionStream

MODES = Modes(survival=False)  # a checkpoint in the middle would be taken for work of the program


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a program, as it was noted on both sides."""

    events: list[Event]
    began: int
    ended: int
    took: Mapping[int, Took]
    value: Any
    bare_us: float | None = None  # how long it takes when nothing is noted, if that is known

    @property
    def total_us(self) -> float:
        return (self.ended - self.began) / 1e3

    @property
    def noting_us(self) -> float:
        """What each command took longer because it was noted."""
        if self.bare_us is None or not self.events:
            return 0.0
        return max(0.0, (self.total_us - self.bare_us) / len(self.events))

    @property
    def waited_us(self) -> float:
        """How long some thread waited for an answer."""
        return waited_ns(self.events, self.began, self.ended) / 1e3

    @property
    def behind_us(self) -> float:
        """How long threads could not go on because another one waited; 0: never two at the same time."""
        return sum(event.behind for event in self.events) / 1e3

    def recording(self, link: Link) -> Recording:
        """Its commands, over a link that was measured like this."""
        return recording_of(self.events, self.began, self.ended, self.took, link, self.noting_us)

    def fitted(self, link: Link) -> Link:
        """This run's link: with what its commands cost on the device side, and its answers on the way."""
        serving = replace(link, serve_us=mean_serve_us(self.events, self.took))
        return fitted(self.recording(link), serving, self.total_us if self.bare_us is None else self.bare_us)

    def fitted_recording(self, link: Link) -> Recording:
        """Its commands with the link that they had: all that a prediction needs."""
        return replace(self.recording(link), link=self.fitted(link))


class Profiler:
    """A bound device and its recording stream; `profiler` makes one."""

    def __init__(self, stream: RecordingStream, device: torch.device, clock: Path) -> None:
        self.device = device
        self.pause_seconds = 0.0  # before each run; a program that comes after a pause finds its processors colder
        self._stream = stream
        self._clock = ClockReader(clock)

    @property
    def session(self) -> SessionStream:
        """The stream itself, on which nothing is noted."""
        return self._stream.real

    def measure_link(self) -> Link:
        """What this device costs beside the work itself."""
        with self.unnoted():
            return measure_link(self.session, self.device)

    def run(self, program: Callable[[], Any]) -> Run:
        """Does it once."""
        stream = self._stream
        self._rest()
        stream.start()
        value = program()
        events = stream.stop()
        wanted = {event.call for event in events}
        took = {
            call: Took(each.device_ns / 1e3, each.serve_ns / 1e3)
            for call, each in self._clock.new().items()
            if call in wanted
        }
        return Run(events, stream.began, stream.ended, took, value)

    def bare_us(self, program: Callable[[], Any]) -> float:
        """Does it once without noting anything; how long that takes."""
        real = self.session
        with self.unnoted():
            self._rest()
            began = time.perf_counter_ns()
            program()
            if real.unanswered:
                real.sync()
            return (time.perf_counter_ns() - began) / 1e3

    def _rest(self) -> None:
        """Until nothing is under way any more, and so long as is wanted before each run."""
        self.session.sync()
        if self.pause_seconds:
            time.sleep(self.pause_seconds)

    @contextmanager
    def unnoted(self) -> Iterator[None]:
        """Calls go straight to the session; tensors stay what they are."""
        before, bound.stream, bound.call = bound.stream, self.session, self.session.call
        try:
            yield
        finally:
            bound.stream, bound.call = before, self._stream.call


@contextmanager
def profiler(
    alias: str = "",
    threads: int = 0,
    memory_bytes: int = 4 * GIB,
    executors: LocalExecutors | None = None,
    through: Callable[[socket.socket], socket.socket] | None = None,
) -> Iterator[Profiler]:
    """A remote CPU device for the time of this context, with a clock; `through` may put something on the way to it."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dgsf-profile-")))
        starter = executors or stack.enter_context(LocalExecutors())
        options = {"threads": threads} if threads else {}
        clock = folder / "clock"
        sock = starter.connect(LocalSpec(memory_bytes=memory_bytes, device_options=options, clock=str(clock)))
        stream = RecordingStream(SessionStream(through(sock) if through else sock, MODES), time.perf_counter_ns)
        stack.callback(stream.close)
        device = stack.enter_context(bind(stream, alias))
        bound.standing = True  # dgsf.attach() in the program is this device
        stack.callback(setattr, bound, "standing", False)
        yield Profiler(stream, device, clock)
