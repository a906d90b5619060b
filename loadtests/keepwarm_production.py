"""Keep-warm as a proxy drives it, on the GenAI trace: `core.warmth` looks twice a second and its orders are done.

What `loadtests.keepwarm` replays is the rule alone, asked at every call and end of a call.  Here it is asked as in
production: at looks, one start ahead per second, workers just used left alone, the budget followed by a shadow, with
the loan that a proxy begins with (`--without-loan`: for runs too short to pay it back).  The devices are imagined, with
8 slots and loads of 2 s; takes two minutes.
`--trace bursts --devices 16 --slots 4` is a pool that is full in bursts: idle workers make way, calls wait for room.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

import click

from dgsf.core import warmth
from dgsf.core.shadow import room_of
from dgsf.core.warmth import Ahead, Order, Warm, Warmth
from dgsf.sim.warmpool import Shape, WarmCall, WarmPool, replay
from dgsf.sim.warmrules import FixedIdle
from loadtests.keepwarm import FIRST_CALLS, calls_of

FIXED_S = 60.0
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
    """A proxy with workers that take no processor time, and so many devices."""

    def __init__(self, slots: int, load_s: float, devices: int | None) -> None:
        self.cold = 0
        self.resident_s = 0.0
        self._slots, self._load_s, self._most = slots, load_s, devices
        self._warmth = Warmth(slots, load_s, FIXED_S)
        if devices is not None:
            self._warmth.there_is(room_of([("", slots, slots, 0)] * devices))
        self._workers: dict[int, Worker] = {}
        self._starved: deque[WarmCall] = deque()  # calls that wait for room
        self._made = self._devices = 0
        self._ends: list[tuple[float, int]] = []
        self._reached: dict[str, set[int]] = {}
        self._now = self._next_look = self._ahead_at = 0.0

    def call(self, at: float, function: str, run_s: float) -> None:
        self.advance(at)
        if not self._serve(self._free_of(function), function, run_s):
            self._starved.append((at, function, run_s))

    def _serve(self, key: int | None, function: str, run_s: float) -> bool:
        """By this worker, or by a new one; False: there is no room."""
        if key is None:
            device = self._slot()
            if device is None and self._no_more_devices:
                device = self._made_way()
                if device is None:
                    return False
            key = self._start(function, device)
        worker = self._workers[key]
        self.cold += worker.ready > self._now
        worker.idle_since = None
        busy = sum(each.function == function and each.idle_since is None for each in self._workers.values())
        self._reached.setdefault(function, set()).add(busy)
        heapq.heappush(self._ends, (max(self._now, worker.ready) + run_s, key))
        return True

    def _serve_starved(self) -> None:
        """Those whose function has become free, then who came first."""
        while self._starved:
            free = ((self._free_of(call[1]), call) for call in self._starved)
            key, call = next((pair for pair in free if pair[0] is not None), (None, self._starved[0]))
            self._starved.remove(call)
            if not self._serve(key, *call[1:]):
                self._starved.appendleft(call)
                return

    @property
    def _no_more_devices(self) -> bool:
        return self._most is not None and len({each.device for each in self._workers.values()}) >= self._most

    def _made_way(self) -> int | None:
        """The device of the least wanted idle worker, which goes; None: all are busy."""
        workers = self._warm()
        rates = self._warmth.rates(workers, self._now)
        idle = [(rate, each.idle_since, each.key) for rate, each in zip(rates, workers, strict=True) if each.idle_since]
        return self._workers.pop(min(idle)[2]).device if idle else None

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
            self._serve_starved()
        self._pass(until)

    def _pass(self, at: float) -> None:
        self.resident_s += len({each.device for each in self._workers.values()}) * (at - self._now)
        self._now = at

    def _obey(self, order: Order) -> None:
        if not isinstance(order, Ahead):
            del self._workers[order.key]
        elif self._now - self._ahead_at >= PAUSE_S and not self._starved:
            where = self._roomiest() if order.device is None else order.device
            if where is None and self._no_more_devices:
                return
            if order.displaces is not None:
                del self._workers[order.displaces]
            self._ahead_at = self._now
            self._start(order.function, where)
        elif order.device is not None:
            self._warmth.again(order.device)

    def _start(self, function: str, device: int | None) -> int:
        self._made += 1
        self._devices += device is None
        where = self._devices if device is None else device
        self._workers[self._made] = Worker(function, where, self._now + self._load_s, self._now)
        return self._made

    def _slot(self) -> int | None:
        room = self._roomiest()
        idle = {key for key, each in self._workers.items() if each.idle_since is not None}
        gone = self._warmth.victim(self._warm(), idle, self._now) if room is None else None
        return room if gone is None else self._workers.pop(gone).device

    def _roomiest(self) -> int | None:
        held = Counter(each.device for each in self._workers.values())
        working = {each.device for each in self._workers.values() if each.idle_since is None}
        room = [(device in working, count, -device) for device, count in held.items() if count < self._slots]
        return -max(room)[2] if room else None

    def _free_of(self, function: str) -> int | None:
        mine = ((key, each) for key, each in self._workers.items() if each.function == function)
        free = [(each.ready <= self._now, each.idle_since, key) for key, each in mine if each.idle_since is not None]
        return max(free)[2] if free else None

    def _warm(self) -> list[Warm]:
        return [Warm(key, each.function, each.device, each.idle_since) for key, each in self._workers.items()]


def compare(calls: Sequence[WarmCall], slots: int, load_s: float, devices: int | None) -> tuple[float, float]:
    """Cold starts and resident time, ours as a part of the fixed rule's."""
    fixed = WarmPool(Shape(slots), load_s, FixedIdle(FIXED_S), waits=False, devices=devices)
    theirs = replay(fixed, calls)
    ours = Imagined(slots, load_s, devices)
    for call in calls:
        ours.call(*call)
    return ours.cold / theirs.cold, ours.resident_s / theirs.resident_s


@click.command()
@click.option("--trace", type=click.Choice(tuple(FIRST_CALLS)), default="genai", show_default=True, help="whose calls")
@click.option("--slots", type=click.IntRange(1), default=8, show_default=True, help="instances that one device holds")
@click.option("--load-s", type=click.FloatRange(0), default=2.0, show_default=True, help="seconds to load a model")
@click.option("--devices", type=click.IntRange(1), help="so many are there, and calls wait for room  [default: no end]")
@click.option("--without-loan", is_flag=True, help="no device time is lent to begin with")
def command(trace: str, slots: int, load_s: float, devices: int | None, without_loan: bool) -> None:
    """Print cold starts and resident time, ours ÷ a fixed idle time of 60 s."""
    if without_loan:
        warmth.LENT_S = 0.0
    cold, resident = compare(calls_of(trace), slots, load_s, devices)
    click.echo(f"cold starts {cold:.3f}, resident time {resident:.3f} of a fixed {FIXED_S:g} s")


if __name__ == "__main__":
    command()
