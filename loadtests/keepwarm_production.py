"""Keep-warm as a proxy drives it, on the GenAI trace: `core.warmth` looks twice a second and its orders are done.

What `loadtests.keepwarm` replays is the rule alone, asked at every call and end of a call.  Here it is asked as in
production: at looks, one start ahead per second, workers just used left alone, the budget followed by a shadow (without
the credit that a proxy begins with).  The devices are imagined, with 8 slots and loads of 2 s; takes two minutes.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import click

from dgsf.config import load_settings
from dgsf.core import warmth
from dgsf.core.warmth import Ahead, Order, Warm, Warmth
from dgsf.sim.traces import read_trace
from dgsf.sim.warmpool import Shape, WarmCall, WarmPool, replay
from dgsf.sim.warmrules import FixedIdle

FIXED_S = 60.0
SLOTS, LOAD_S = 8, 2.0
LOOK_S = 0.5
PAUSE_S = 1.0  # between two starts ahead


@dataclass(slots=True)
class Worker:
    """One instance."""

    function: str
    device: int
    ready: float
    idle_since: float | None


class Imagined:
    """A proxy with workers that take no processor time."""

    def __init__(self) -> None:
        self.cold = 0
        self.resident_s = 0.0
        self._warmth = Warmth(SLOTS, LOAD_S, FIXED_S)
        self._workers: dict[int, Worker] = {}
        self._made = self._devices = 0
        self._ends: list[tuple[float, int]] = []
        self._reached: dict[str, set[int]] = {}
        self._now = self._next_look = self._ahead_at = 0.0

    def call(self, at: float, function: str, run_s: float) -> None:
        self.advance(at)
        key = self._free_of(function)
        if key is None:
            key = self._start(function, self._slot())
        worker = self._workers[key]
        self.cold += worker.ready > at
        worker.idle_since = None
        busy = sum(each.function == function and each.idle_since is None for each in self._workers.values())
        self._reached.setdefault(function, set()).add(busy)
        heapq.heappush(self._ends, (max(at, worker.ready) + run_s, key))

    def advance(self, until: float) -> None:
        while (at := min(self._next_look, self._ends[0][0] if self._ends else until)) < until:
            self._pass(at)
            if self._ends and self._ends[0][0] <= at:
                self._workers[heapq.heappop(self._ends)[1]].idle_since = at
            else:
                self._next_look = at + LOOK_S
                reached, self._reached = self._reached, {}
                for order in self._warmth.look(self._warm(), reached, at):
                    self._obey(order)
        self._pass(until)

    def _pass(self, at: float) -> None:
        self.resident_s += len({each.device for each in self._workers.values()}) * (at - self._now)
        self._now = at

    def _obey(self, order: Order) -> None:
        if not isinstance(order, Ahead):
            del self._workers[order.key]
        elif self._now - self._ahead_at >= PAUSE_S:
            if order.displaces is not None:
                del self._workers[order.displaces]
            self._ahead_at = self._now
            self._start(order.function, self._roomiest() if order.device is None else order.device)
        elif order.device is not None:
            self._warmth.again(order.device)

    def _start(self, function: str, device: int | None) -> int:
        self._made += 1
        self._devices += device is None
        where = self._devices if device is None else device
        self._workers[self._made] = Worker(function, where, self._now + LOAD_S, self._now)
        return self._made

    def _slot(self) -> int | None:
        room = self._roomiest()
        idle = {key for key, each in self._workers.items() if each.idle_since is not None}
        gone = self._warmth.victim(self._warm(), idle, self._now) if room is None else None
        return room if gone is None else self._workers.pop(gone).device

    def _roomiest(self) -> int | None:
        held = Counter(each.device for each in self._workers.values())
        working = {each.device for each in self._workers.values() if each.idle_since is None}
        room = [(device in working, count, -device) for device, count in held.items() if count < SLOTS]
        return -max(room)[2] if room else None

    def _free_of(self, function: str) -> int | None:
        mine = ((key, each) for key, each in self._workers.items() if each.function == function)
        free = [(each.ready <= self._now, each.idle_since, key) for key, each in mine if each.idle_since is not None]
        return max(free)[2] if free else None

    def _warm(self) -> list[Warm]:
        return [Warm(key, each.function, each.device, each.idle_since) for key, each in self._workers.items()]


def compare(calls: Sequence[WarmCall]) -> tuple[float, float]:
    """Cold starts and resident time, ours as a part of the fixed rule's."""
    fixed = WarmPool(Shape(SLOTS), LOAD_S, FixedIdle(FIXED_S), waits=False)
    theirs = replay(fixed, calls)
    ours = Imagined()
    for call in calls:
        ours.call(*call)
    return ours.cold / theirs.cold, ours.resident_s / theirs.resident_s


@click.command()
def command() -> None:
    """Print cold starts and resident time, ours ÷ a fixed idle time of 60 s."""
    read = read_trace("genai", load_settings().traces)
    names = [read.functions[index].name for index in read.function]
    warmth.CREDIT_S = 0.0
    cold, resident = compare(list(zip(read.arrival_s, names, read.run_s, strict=True)))
    click.echo(f"cold starts {cold:.3f}, resident time {resident:.3f} of a fixed {FIXED_S:g} s")


if __name__ == "__main__":
    command()
