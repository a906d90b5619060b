"""A stream that notes what a program does with its device: when it issued each command, and where it waited.

It wraps a real stream and changes nothing of it.  Together with the executor's clock of the calls this becomes the
`Recording` from which the performance model predicts other links.  Threads use it one after the other, as they do with
the real one, so what was counted belongs to one command.  For profiles only: noting costs about a microsecond.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from dgsf.core.perfmodel import Command, Link, Recording
from dgsf.remoting.guest.kinds import Kind, Meta
from dgsf.remoting.guest.session_stream import SessionStream

BULK_BYTES = 64 * 1024  # so many bytes up at once are a transfer; while an answer is awaited, of content that is missed


class Event(NamedTuple):
    """One use of the stream; times in nanoseconds, bytes as they went over the wire meanwhile."""

    name: str
    began: int
    ended: int
    call: int  # its number if it is a call, else 0
    up_bytes: int
    down_bytes: int
    waited: bool
    behind: int = 0  # how long it could not begin because another thread waited for an answer


@dataclass(frozen=True, slots=True)
class Took:
    """What the device side needed for one call."""

    device_us: float
    serve_us: float


class RecordingStream:
    """See `dgsf.remoting.guest.kinds.Stream`; `stop` gives what was noted since `start`."""

    def __init__(self, real: SessionStream, now_ns: Callable[[], int]) -> None:
        self.real = real
        self.modes = real.modes
        self.events: list[Event] = []
        self.began = self.ended = 0
        self.free = real.free
        self._now = now_ns
        self._lock = threading.RLock()
        self._answered = 0  # when the latest wait for an answer ended

    def start(self) -> None:
        """Forget what was before, and note from now on; waits for what is still under way, which is no part of it."""
        if self.real.unanswered:
            self.real.sync()
        self.events = []
        self.began = self._now()

    def stop(self) -> list[Event]:
        """The program is done; waits for the device, so that this is part of what was noted."""
        if self.events and not self.events[-1].waited:
            self.sync()
        self.ended = self._now()
        self.real.sync()  # the executor's clock is complete up to the question before this one
        events, self.events = self.events, []
        return events

    def _noted(self, name: str, do: Callable[..., Any], *args: Any) -> Any:
        wanted = self._now()
        with self._lock:
            behind = max(0, self._answered - wanted)
            began = self._now()
            calls, up, down, trips = self.real.counts()
            try:
                return do(*args)
            finally:
                now_calls, now_up, now_down, now_trips = self.real.counts()
                call, waited, ended = now_calls if now_calls != calls else 0, now_trips != trips, self._now()
                self.events.append(Event(name, began, ended, call, now_up - up, now_down - down, waited, behind))
                if waited:
                    self._answered = ended

    def call(self, kind: Kind, handles: list[int], floats: Sequence[float] = ()) -> int:
        out: int = self._noted(kind.op, self.real.call, kind, handles, floats)
        return out

    def ask(self, kind: Kind, handles: list[int], floats: Sequence[float] = ()) -> tuple[int, list[Any]]:
        found: tuple[int, list[Any]] = self._noted(kind.op, self.real.ask, kind, handles, floats)
        return found

    def meta(self, handle: int) -> Meta:
        found: Meta = self._noted("ask for a shape", self.real.meta, handle)
        return found

    def upload(self, tensor: torch.Tensor) -> int:
        handle: int = self._noted("upload", self.real.upload, tensor)
        return handle

    def fetch(self, handle: int) -> torch.Tensor:
        found: torch.Tensor = self._noted("download", self.real.fetch, handle)
        return found

    def seed(self, seed: int) -> None:
        self._noted("seed", self.real.seed, seed)

    def rng_state(self) -> torch.Tensor:
        found: torch.Tensor = self._noted("read the generator", self.real.rng_state)
        return found

    def set_rng_state(self, state: torch.Tensor) -> None:
        self._noted("set the generator", self.real.set_rng_state, state)

    def memory(self, forget_peak: bool = False) -> tuple[int, int, int]:
        found: tuple[int, int, int] = self._noted("ask for the memory", self.real.memory, forget_peak)
        return found

    def lease(self) -> int:
        return self.real.lease()

    def sync(self) -> None:
        self._noted("synchronize", self.real.sync)

    def flush(self) -> None:
        self._noted("flush", self.real.flush)

    def forked(self) -> None:
        self._lock = threading.RLock()  # as the real one does
        self.real.forked()

    def close(self) -> None:
        self.real.close()


def recording_of(
    events: Sequence[Event], began: int, ended: int, took: Mapping[int, Took], link: Link, noting_us: float = 0.0
) -> Recording:
    """The commands of one run; what issuing and sending took over this link is the link's, not the program's."""
    commands: list[Command] = []
    last = began
    for event in events:
        issued = event.began if event.waited else event.ended
        guest_us = (issued - last) / 1e3 - link.command_us - noting_us
        last = max(last, event.ended)
        if event.up_bytes >= BULK_BYTES and event.waited:  # the device side asked for it first: a round trip more
            commands.append(Command(0.0, sync=True, guest_us=max(0.0, guest_us)))
            guest_us = 0.0
        elif event.up_bytes >= BULK_BYTES:
            guest_us -= event.up_bytes / link.bytes_per_us
        kernel_us = took[event.call].device_us if event.call in took else 0.0
        down = event.down_bytes if event.waited else 0
        commands.append(Command(kernel_us, event.up_bytes, down, event.waited, max(0.0, guest_us)))
    commands.append(Command(0.0, guest_us=max(0.0, (ended - last) / 1e3)))  # no command: the link has no part in it
    return Recording(commands)


def waited_ns(events: Sequence[Event], began: int, ended: int) -> int:
    """For how much of this time somebody waited for an answer, whoever and however many."""
    waited, until = 0, began
    for event in sorted((event for event in events if event.waited), key=lambda event: event.began):
        waited += max(0, min(event.ended, ended) - max(event.began, until))
        until = max(until, event.ended)
    return waited


def mean_serve_us(events: Sequence[Event], took: Mapping[int, Took]) -> float:
    """What the executor needs for a command beside the device's own time, on average."""
    if not events:
        return 0.0
    return sum(took[event.call].serve_us for event in events if event.call in took) / len(events)
