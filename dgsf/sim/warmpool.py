"""Replays calls over devices with slots, and counts cold starts and resident device-seconds.

The pool owns what every keep-warm rule shares: instances load, run, wait idle and go.  What stays, what is loaded ahead
and which slot a new instance gets is asked of a Keeper.  A call that must wait for a load is a cold start, also when
that load was begun ahead of it and has not ended.  A device is resident while it holds any instance.

What an instance is depends on the device.  Usually each has its own copy of the weights and serves one call at a time.
Where calls of a function share the weights that are on their device (`Shape.shared`), it serves as many as come, within
the number of calls that the device runs at once.

There may be an end of devices.  Then an idle instance makes way where there is no room, whichever the rule names, and a
call that finds none waits; those whose function becomes free go first, then who came first.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dgsf.core.keepwarm import Resident, Review, worth_waiting

WarmCall = tuple[float, str, float]  # arrival s, function, run s
_RUN_MEMORY = 16.0  # calls that the mean run time remembers


class Keeper(Protocol):
    """A keep-warm rule."""

    def arrived(self, pool: WarmPool, function: str, *, waits: bool) -> None: ...

    def review(self, pool: WarmPool, device: int) -> tuple[list[Resident], Review]: ...

    def slot(self, pool: WarmPool) -> int | None: ...

    def gives_way(self, pool: WarmPool, idle: Sequence[Resident]) -> Resident: ...

    def ended(self, pool: WarmPool, function: str) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Shape:
    """What one device holds: so many instances, of which so many calls run at once; 0: as many as it holds."""

    slots: int
    runs: int = 0
    shared: bool = False  # calls of a function on one device share an instance

    @property
    def most_runs(self) -> int:
        return self.runs or self.slots


@dataclass(slots=True)
class Count:
    """What a replay has seen since it began to count."""

    calls: int = 0
    cold: int = 0
    waited: int = 0
    waited_s: float = 0.0
    fetched: int = 0
    resident_s: float = 0.0


class WarmPool:
    """Devices with slots under one keeper; `count_from` leaves out the time in which it learns."""

    def __init__(
        self,
        shape: Shape | int,
        load_s: float,
        keeper: Keeper,
        *,
        waits: bool,
        count_from: float = 0.0,
        devices: int | None = None,
    ) -> None:
        """`devices`: so many are there; None: as many as are wanted."""
        self.shape = Shape(shape) if isinstance(shape, int) else shape
        self.load_s = load_s
        self.now = 0.0
        self.residents: list[Resident] = []
        self.running: Counter[str] = Counter()
        self.held: dict[int, int] = {}  # device: how many instances it holds
        self.busy_on: Counter[int] = Counter()  # device: how many calls run on it
        self.count = Count()
        self.resident_s = 0.0
        self.starved: deque[WarmCall] = deque()  # calls that wait for room
        self._keeper = keeper
        self._devices = math.inf if devices is None else devices
        self._waits = waits
        self._count_from = count_from
        self._events: list[tuple[float, int, str, object, int]] = []
        self._made = 0
        self._next_device = 0
        self._review_no: Counter[int] = Counter()
        self._ready: dict[int, float] = {}  # id of an instance that is loading: when it is loaded
        self._calls_of: Counter[int] = Counter()  # id of an instance: how many calls it serves now
        self._queues: dict[str, deque[tuple[float, float]]] = defaultdict(deque)
        self._mean_run: dict[str, float] = {}

    # --- what happens -------------------------------------------------------------------------
    def call(self, at: float, function: str, run_s: float) -> None:
        self.advance(at)
        counted = at >= self._count_from
        self.count.calls += counted
        item = self._free_of(function)
        waits = item is None and self._should_wait(function)
        self._keeper.arrived(self, function, waits=waits)
        if waits:
            self.count.waited += counted
            self._queues[function].append((at, run_s))
        elif not self._serve(item, (at, function, run_s)):
            self.count.waited += counted
            self.starved.append((at, function, run_s))
        mean = self._mean_run.setdefault(function, run_s)
        self._mean_run[function] = mean + (run_s - mean) / _RUN_MEMORY

    def _serve(self, item: Resident | None, call: WarmCall) -> bool:
        """By this instance, or by a new one; False: there is no room."""
        at, function, run_s = call
        cold = item is None or id(item) in self._ready
        if item is None:
            item = self._new(function)
            if item is None:
                return False
        self.count.cold += cold and at >= self._count_from
        self._start(item, function, run_s)
        self._review(item.device)
        return True

    def _new(self, function: str) -> Resident | None:
        device = self._keeper.slot(self)
        if device is None and self._no_more_devices:
            idle = self.displaceable()
            if not idle:
                return None
            gone = self._keeper.gives_way(self, idle)
            self.evict(gone, keep_device=True)
            device = gone.device
        item = self._add(function, device)
        self._ready[id(item)] = self.now + self.load_s
        return item

    @property
    def _no_more_devices(self) -> bool:
        return len(self.held) >= self._devices

    def _start(self, item: Resident, function: str, run_s: float) -> None:
        delay = max(0.0, self._ready.get(id(item), 0.0) - self.now)
        item.idle_since = None
        self.running[function] += 1
        self.busy_on[item.device] += 1
        self._calls_of[id(item)] += 1
        self._later(self.now + delay + run_s, "end", item)

    def advance(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            at, _, kind, what, number = heapq.heappop(self._events)
            self._pass(at)
            if kind == "end":
                assert isinstance(what, Resident)
                self._ended(what)
            elif kind == "review":
                assert isinstance(what, int)
                if self._review_no[what] == number and what in self.held:
                    self._review(what)
            else:
                assert isinstance(what, str)
                self._fetch(what, None, None)
            self._serve_starved()
        self._pass(until)

    def _serve_starved(self) -> None:
        while self.starved:
            free = ((self._free_of(call[1]), call) for call in self.starved)
            item, call = next((pair for pair in free if pair[0] is not None), (None, self.starved[0]))
            self.starved.remove(call)
            if not self._serve(item, call):
                self.starved.appendleft(call)
                return
            self.count.waited_s += (self.now - call[0]) * (call[0] >= self._count_from)

    def _ended(self, item: Resident) -> None:
        queue = self._queues[item.function]
        if queue:
            self._keeper.ended(self, item.function)
            since, run_s = queue.popleft()
            self.count.waited_s += (self.now - since) * (since >= self._count_from)
            self._later(self.now + run_s, "end", item)
            return
        self.running[item.function] -= 1
        self.busy_on[item.device] -= 1
        self._calls_of[id(item)] -= 1
        if not self._calls_of[id(item)]:
            item.idle_since = self.now
        ahead = self._keeper.ended(self, item.function)
        if ahead is not None:
            self._later(self.now + ahead, "fetch", item.function)
        self._review(item.device)

    # --- what the keeper decides --------------------------------------------------------------
    def _review(self, device: int) -> None:
        gone, review = self._keeper.review(self, device)
        for item in gone:
            self.evict(item)
        for function, displaced in review.fetch:
            self._fetch(function, device, displaced)
        self._review_no[device] += 1
        if device in self.held and review.again_at < math.inf:
            self._later(max(review.again_at, self.now + 1e-3), "review", device, self._review_no[device])

    def _fetch(self, function: str, device: int | None, displaced: Resident | None) -> None:
        """Loads a function ahead, unless it is idle here already, or calls wait for room: that is theirs."""
        if self.starved or (device is None and self._free_of(function) is not None):
            return
        where = self.roomiest() if device is None else device
        if where is None and self._no_more_devices:
            return
        if displaced is not None:
            self.evict(displaced, keep_device=True)
        item = self._add(function, where)
        item.idle_since = self.now
        self._ready[id(item)] = self.now + self.load_s
        self.count.fetched += self.now >= self._count_from
        if device is None:
            self._review(item.device)

    def _add(self, function: str, device: int | None) -> Resident:
        if device is None:
            self._next_device += 1
            device = self._next_device
            self.held[device] = 0
        item = Resident(function, device)
        self.residents.append(item)
        self.held[device] += 1
        return item

    def evict(self, item: Resident, *, keep_device: bool = False) -> None:
        self.residents.remove(item)
        self._ready.pop(id(item), None)
        self._calls_of.pop(id(item), None)
        self.held[item.device] -= 1
        if not self.held[item.device] and not keep_device:
            del self.held[item.device]

    # --- looking ------------------------------------------------------------------------------
    def displaceable(self) -> list[Resident]:
        """Idle instances on devices that can run one more call."""
        return [item for item in self.residents if item.idle_since is not None and self._can_run(item.device)]

    def on(self, device: int) -> list[Resident]:
        return [item for item in self.residents if item.device == device]

    def loading(self, function: str) -> int:
        """How many calls of a function wait for their load."""
        mine = (item for item in self.residents if item.function == function and id(item) in self._ready)
        return sum(self._calls_of[id(item)] for item in mine)

    def roomiest(self) -> int | None:
        """The fullest device with a free slot for one more call, those that work first; None: a new one."""
        room = (device for device, held in self.held.items() if held < self.shape.slots and self._can_run(device))
        open_ = [(self.busy_on[device] > 0, self.held[device], -device) for device in room]
        return -max(open_)[2] if open_ else None

    def _free_of(self, function: str) -> Resident | None:
        """The instance that takes a call: loaded, on a device that works anyway, latest used."""
        mine = [
            item
            for item in self.residents
            if item.function == function
            and (item.idle_since is not None or self.shape.shared)
            and self._can_run(item.device)
        ]
        order = lambda m: (id(m) not in self._ready, self.busy_on[m.device] > 0, m.idle_since or 0.0)  # noqa: E731
        return max(mine, key=order, default=None)

    def _can_run(self, device: int) -> bool:
        return self.busy_on[device] < self.shape.most_runs

    def _should_wait(self, function: str) -> bool:
        if not self._waits or function not in self._mean_run:
            return False
        running = self.running[function]
        return worth_waiting(len(self._queues[function]), running, self._mean_run[function], self.load_s)

    def _pass(self, at: float) -> None:
        self.resident_s += len(self.held) * (at - self.now)
        self.count.resident_s += len(self.held) * max(0.0, at - max(self.now, self._count_from))
        self.now = at
        for key in [key for key, ready in self._ready.items() if ready <= at]:
            del self._ready[key]

    def _later(self, at: float, kind: str, what: object, number: int = 0) -> None:
        self._made += 1
        heapq.heappush(self._events, (at, self._made, kind, what, number))


def replay(pool: WarmPool, calls: Sequence[WarmCall]) -> Count:
    """All calls through one pool, to the moment of the last arrival."""
    for at, function, run_s in calls:
        pool.call(at, function, run_s)
    if calls:
        pool.advance(calls[-1][0])
    return pool.count
