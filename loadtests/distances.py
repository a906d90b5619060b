"""One program in one session whose distance changes from run to run: recorded without delay, timed at each delay.

Program, executor and relay stay the same processes, so that distance is all that differs.  A turn takes one run of each
sort in an order of its own: what slows this machine for a while slows all of them, and a turn's prediction is held
against the same turn's run.  A prediction knows the recording, its total and a probe of the way; never a timed run.
There are no checkpoints, and the executor's clock runs all the time.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from statistics import median

import torch

from dgsf.core.perfmodel import Link, predict
from dgsf.remoting.executor.local import LocalExecutors
from dgsf.remoting.guest.pace import Pace
from dgsf.remoting.guest.probe import DOWNLOAD_BYTES, Probe
from dgsf.remoting.profiling import Profiler, Run, profiler
from dgsf.remoting.repeats import without_noting
from loadtests.latency_relay import LatencyRelay

WARM = 5
WARM_FAR = 2  # at each distance, after that
VALUES = 2  # asked for before each run
DOWNLOADS_EVERY = 4  # turns
PAUSE_SECONDS = 10e-3  # before each run: as long as the longest round trip, so that all find their processors as cold
Step = Callable[[], object]
Program = Callable[[torch.device], Step]


@dataclass(frozen=True, slots=True)
class Found:
    """At one distance: what was asked of the way, and how long the program took, turn by turn."""

    values_us: list[float] = field(default_factory=list)
    downloads_us: list[float] = field(default_factory=list)
    took_us: list[float] = field(default_factory=list)

    @property
    def value_us(self) -> float:
        return median(self.values_us)

    @property
    def bytes_per_us(self) -> float:
        return DOWNLOAD_BYTES / max(1.0, median(self.downloads_us) - self.value_us)


class Sitting:
    """The session; `turn` as often as wanted, then `predicted_us` beside what was `found`."""

    def __init__(self, made: Profiler, relay: LatencyRelay, program: Program, delays_ms: Sequence[float]) -> None:
        self._made = made
        made.pause_seconds = PAUSE_SECONDS
        self._relay = relay
        self._step = program(made.device)
        self.link = made.measure_link()
        self._probe = Probe(made.device)
        self._paces = {delay_ms: Pace() for delay_ms in (0.0, *delays_ms)}
        self.found = {delay_ms: Found() for delay_ms in (0.0, *delays_ms)}
        self._runs: list[Run] = []
        self._bare_us: list[float] = []
        self._warm()

    def _warm(self) -> None:
        for _ in range(WARM):
            self._step()
        for delay_ms in self._paces:
            self._go(delay_ms)
            for _ in range(WARM_FAR):
                self._step()

    def turn(self, number: int) -> None:
        """One run of each sort."""
        sorts = [None, *self.found]  # None: recorded
        Random(number).shuffle(sorts)
        for delay_ms in sorts:
            if delay_ms is None:
                self._record()
            else:
                self._measure(delay_ms, number)

    def _record(self) -> None:
        self._ask(0.0)
        self._runs.append(self._made.run(self._step))
        self._bare_us.append(self._made.bare_us(self._step))

    def _measure(self, delay_ms: float, number: int) -> None:
        found = self.found[delay_ms]
        if number % DOWNLOADS_EVERY == 0:
            self._go(delay_ms)
            with self._made.unnoted():
                found.downloads_us.append(self._probe.download_us())
        self._ask(delay_ms)
        found.took_us.append(self._made.bare_us(self._step))

    def _ask(self, delay_ms: float) -> None:
        """Values, at this distance."""
        self._go(delay_ms)
        with self._made.unnoted():
            self.found[delay_ms].values_us.extend(self._probe.value_us() for _ in range(VALUES))

    def _go(self, delay_ms: float) -> None:
        self._relay.delay(delay_ms / 1e3)
        self._made.session.use_pace(self._paces[delay_ms])
        self._made.session.sync()

    def predicted_us(self) -> dict[float, list[float]]:
        """By delay, turn by turn: from that turn's recording and the way."""
        runs = without_noting(self._runs, self._bare_us)
        return {delay_ms: predictions(runs, self.link, self.found, delay_ms) for delay_ms in self.found}


def predictions(runs: Sequence[Run], link: Link, found: Mapping[float, Found], delay_ms: float) -> list[float]:
    """Of runs without delay over this link, for this delay; of what was found only probes count."""
    near, far = found[0.0], found[delay_ms]
    link = replace(link, sync_us=near.value_us, bytes_per_us=near.bytes_per_us)
    trip_us = 2e3 * delay_ms
    return [_predicted_us(run, link, trip_us, far.value_us - trip_us - near.value_us, far.bytes_per_us) for run in runs]


def _predicted_us(run: Run, link: Link, trip_us: float, more_us: float, bytes_per_us: float) -> float:
    """`more_us` is what an answer costs there beside the delay."""
    own = run.fitted(link)
    far = replace(own, round_trip_us=trip_us, sync_us=max(0.0, own.sync_us + more_us), bytes_per_us=bytes_per_us)
    return predict(run.recording(link), far).total_us


@contextmanager
def sitting(executors: LocalExecutors, program: Program, delays_ms: Sequence[float], memory: int) -> Iterator[Sitting]:
    """A session of its own for this program.

    The relay is on the way without delay too: on a few processors it takes time from the others.
    """
    with ExitStack() as stack:
        relays: list[LatencyRelay] = []

        def through(sock: socket.socket) -> socket.socket:
            relays.append(stack.enter_context(LatencyRelay(sock, 0.0, spin_seconds=0.0)))
            return relays[0].guest

        made = stack.enter_context(profiler("", 1, memory, executors, through))
        yield Sitting(made, relays[0], program, delays_ms)
