"""The discrete-event simulator: calls arrive, find a warm instance or place a new one, run, wait, fail and are retried.

One heap of plain tuples is the virtual clock.  Warm calls, which are most, touch only lists: a function's idle
instances are a stack, its waiting calls a queue.  Placement is asked only for new instances, and is not asked again for
a shape that was refused until something is freed.  The same workload, pool, rules and seed give the same result, bit
for bit: nothing here reads a clock or an unseeded random number.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from random import Random

from dgsf.core.placement import Placement, Refusal, Request
from dgsf.sim.fairness import FairClock
from dgsf.sim.idling import Idling
from dgsf.sim.instance import Instance
from dgsf.sim.machine import Machine, request_of
from dgsf.sim.moving import Mover
from dgsf.sim.pools import PoolSpec
from dgsf.sim.rules import Rules
from dgsf.sim.sharing import Sharing, contended
from dgsf.sim.timeline import Timeline
from dgsf.sim.warming import LOOK_S, Warming
from dgsf.sim.workload import Workload

END, EXPIRE, COPIED, FAIL, REPAIR, LOOK = range(6)
_TELL_EVERY = 20_000
MOST_ATTEMPTS = 10  # of one call on devices that fail under it; then it is lost
_PATIENCE = 100  # repairs of each device without a start, after which the calls that still wait are given up
Progress = Callable[[int], None]


class Simulator:
    """One run of one workload on one pool under one policy."""

    def __init__(self, workload: Workload, spec: PoolSpec, policy: str, rules: Rules) -> None:
        self.workload = workload
        self.rules = rules
        self.policy = policy
        self.machine = Machine(spec, policy, rules.seed)
        self.now = self._next_arrival = 0.0
        count = len(workload.functions)
        owners = workload.owners()
        durations = workload.lives_s() if rules.durations else {}
        self._requests: list[Request] = [
            request_of(
                item, workload.tenants[owners[index]], exclusive=rules.exclusive, duration_s=durations.get(index, 0.0)
            )
            for index, item in enumerate(workload.functions)
        ]
        self._idle: list[list[Instance]] = [[] for _ in range(count)]
        self._queues: list[deque[int]] = [deque() for _ in range(count)]
        self._waiting: OrderedDict[int, None] = OrderedDict()  # functions with waiting calls, by the age of the first
        self._idling = Idling(self.machine.pool)
        self._events: list[tuple[float, int, int, Instance | int, int]] = []
        self._made = 0
        self._freed = 0  # rises whenever something may have become placeable
        numbers: dict[object, int] = {}
        self._shapes = [numbers.setdefault(self._shape(each), len(numbers)) for each in self._requests]
        self._refused: dict[int, int] = {}  # shape: `_freed` when it was refused
        self._tracked = bool(rules.mtbf_h or rules.moves)
        self._on: dict[int, dict[Instance, None]] = {}  # device: its instances, if devices fail or calls move
        self.mover = Mover(rules.moves, rules.idle_s, self.machine.pool, self._on) if rules.moves else None
        self._cached: set[tuple[int, int]] = set()  # (row, function): weights in the node's memory
        self._warming = Warming(workload, self._requests, rules, self.machine) if rules.learned else None
        if self._warming is not None:
            self._idling.wanted = self._wanted
        self._stay_s = rules.idle_s if self._warming is None else self._warming.longest_s
        self._random = Random(rules.seed + 1)  # noqa: S311  # a simulation
        self._sharing = Sharing(rules.interference, self._later_end) if contended(workload, rules) else None
        self._fair = FairClock(workload.tenant, len(workload.tenants)) if rules.fair else None
        self._running = 0
        self._copying = 0  # places that are held until a move is done
        self._down = 0
        self._vain = 0  # repairs since a call started last
        self.timeline = Timeline(workload, self._requests)
        self.wait_s = array("d", bytes(8 * workload.calls))
        self.done_s = array("d", bytes(8 * workload.calls))  # arrival to end; negative: never ran
        self.tenant_s = [0.0] * len(workload.tenants)
        self.busy_s = 0.0  # device-seconds of calls
        self.lost_s = 0.0  # of those, on devices that failed under them
        self.cold = self.retried = self.refused = self.lost = self.evicted = self.failures = self.ahead = 0
        self._attempts: Counter[int] = Counter()  # call: how often a device failed under it

    # --- the loop -----------------------------------------------------------------------------
    def run(self, progress: Progress | None = None) -> Simulator:
        """All calls to their end."""
        arrivals, calls = self.workload.arrival_s, self.workload.calls
        self._first_failures()
        if self._warming is not None:
            self._later(LOOK_S, LOOK, 0)
        events, pop, index, timeline = self._events, heapq.heappop, 0, self.timeline
        while index < calls:
            self._next_arrival = at = arrivals[index]
            while events and events[0][0] <= at:
                self._handle(*pop(events))
            if at > timeline.next_s:
                timeline.reach(at, self)
            self.now = at
            self._arrive(index)
            index += 1
            if progress is not None and index % _TELL_EVERY == 0:
                progress(index)
        self._next_arrival = math.inf
        while (self._running or self._copying or self._can_go_on()) and events:
            self._handle(*pop(events))
        timeline.close(self)
        self._give_up()
        self.machine.close(self.now)
        if progress is not None:
            progress(calls)
        return self

    def _handle(self, at: float, _: int, kind: int, what: Instance | int, version: int) -> None:
        if at > self.timeline.next_s:
            self.timeline.reach(at, self)
        if kind == END:
            assert isinstance(what, Instance)
            if what.version == version:
                self.now = at
                self._ended(what)
        elif kind == EXPIRE:
            assert isinstance(what, Instance)
            self._expire(what, at)
        elif kind == COPIED:
            assert isinstance(what, Instance)
            self.now = at
            self._copied(what)
        else:
            assert isinstance(what, int)
            self.now = at
            (self._fail if kind == FAIL else self._repair if kind == REPAIR else self._look)(what)

    def _can_go_on(self) -> bool:
        """Nothing runs: whether waiting calls may still get a place."""
        if not self._waiting:
            return False
        self._refused.clear()
        self._serve_waiting()
        patient = self._vain < _PATIENCE * self.machine.devices
        return self._running > 0 or bool(self._idling.unused) or (self._down > 0 and patient)

    def _give_up(self) -> None:
        for function in self._waiting:
            for call in self._queues[function]:
                self._refuse(call)

    def _refuse(self, call: int) -> None:
        self.refused += 1
        self.wait_s[call] = self.now - self.workload.arrival_s[call]
        self.done_s[call] = -1.0

    # --- calls --------------------------------------------------------------------------------
    def _arrive(self, call: int) -> None:
        function = self.workload.function[call]
        idle = self._idle[function]
        if idle:
            self._use(idle.pop(), call)
            return
        queue = self._queues[function]
        if not queue:
            placed = self._open(function)
            if isinstance(placed, Instance):
                self._start_cold(placed, call)
                return
            if placed is not None and not placed.ever:
                self._refuse(call)
                return
            self._waiting[function] = None
        self._queue(call, queue.append)

    def _use(self, item: Instance, call: int) -> None:
        """A call takes an idle instance; one that was started ahead may still be loading."""
        self._idling.leave(item)
        load_s = max(0.0, item.ready_at - self.now)
        self.cold += load_s > 0
        self._start(item, call, load_s)

    def _queue(self, call: int, put: Callable[[int], None]) -> None:
        put(call)
        if self._fair is not None:
            self._fair.waits(call)

    def _next(self, queue: deque[int]) -> int:
        call = queue.popleft()
        if self._fair is not None:
            self._fair.served(call)
        return call

    def _open(self, function: int) -> Instance | Refusal | None:
        """A new instance; idle ones of others may give way.  None: refused before, nothing freed since."""
        shape = self._shapes[function]
        if self._refused.get(shape) == self._freed:
            return None
        request = self._requests[function]
        placed = self.machine.place(function, request, self.now)
        if isinstance(placed, Refusal) and placed.ever:
            placed = self._make_room(function, request, placed)
        if isinstance(placed, Refusal):
            self._refused[shape] = self._freed
        else:
            self._track(placed)
        return placed

    def _make_room(self, function: int, request: Request, refusal: Refusal) -> Instance | Refusal:
        """Gives idle instances up, if that helps, and asks again."""
        share = self.machine.takes(request)
        if share is None:
            return Refusal(refusal.reason, ever=False)
        victims = self._idling.to_give_up(request, share)
        for victim in victims:
            self._close(victim)
        self.evicted += len(victims)
        return self.machine.place(function, request, self.now) if victims else refusal

    def _shape(self, request: Request) -> object:
        """Requests of one shape find room or find none alike; a tenant's own slices are no room for others."""
        return (request.shape, request.tenant) if self.machine.makes_slices else request.shape

    def _track(self, item: Instance) -> None:
        self._idling.opened(item)
        for device in item.devices if self._tracked else ():
            self._on.setdefault(device, {})[item] = None

    def _untrack(self, item: Instance) -> None:
        self._idling.closed(item)
        for device in item.devices if self._tracked else ():
            self._on[device].pop(item, None)

    def _start_cold(self, item: Instance, call: int) -> None:
        self.cold += 1
        self._start(item, call, self._load_s(item))

    def _load_s(self, item: Instance) -> float:
        """What a load takes here: the fork, and the weights from the node's memory or over the network."""
        spec = self.workload.functions[item.function]
        if not spec.weights_mib:
            return self.rules.start_s
        key = (item.row, item.function)
        speed = self.rules.host_mib_per_s if key in self._cached else self.rules.network_mib_per_s
        self._cached.add(key)
        return self.rules.start_s + spec.weights_mib / speed

    def _start(self, item: Instance, call: int, load_s: float) -> None:
        now = self.now
        self.wait_s[call] = now - self.workload.arrival_s[call]
        item.call = call
        item.began = now
        item.loaded = load_s
        spec = self.workload.functions[item.function]
        run_s = self.workload.run_s[call] * spec.slowdown
        item.work = load_s + (run_s / item.speed if spec.scales else run_s)
        item.version += 1
        self._running += 1
        self._vain = 0
        if self._warming is not None:
            self._warming.began(item.function)
        if self._sharing is None:
            self._later_end(item, now + item.work)
        else:
            self._sharing.joined(item, spec.duty, now)

    def _later_end(self, item: Instance, at: float) -> None:
        self._made += 1
        heapq.heappush(self._events, (at, self._made, END, item, item.version))

    def _ended(self, item: Instance) -> None:
        call, now = item.call, self.now
        if self.machine.learns:
            self.machine.ran(item, now - item.began - item.loaded)
        self._stop(item)
        self.done_s[call] = now - self.workload.arrival_s[call]
        queue = self._queues[item.function]
        if queue and self._may_go_on(queue[0]):
            following = self._next(queue)
            if not queue:
                del self._waiting[item.function]
            self._start(item, following, 0.0)
            return
        self._rest(item)
        if self._waiting:
            self._serve_waiting()
        if self.mover is not None:
            self._give_up_devices(self.mover)

    def _may_go_on(self, call: int) -> bool:
        """Whether a warm instance takes its function's next call at once: its tenant is not far ahead of others."""
        if self._fair is None or len(self._waiting) == 1:
            return True
        turn = self._fair.turn
        least = min(turn(self._queues[function][0]) for function in self._waiting)
        return turn(call) <= least + self.rules.quantum_s

    def _stop(self, item: Instance) -> None:
        """The call of an instance is over, one way or another; its device time counts."""
        now = self.now
        self._running -= 1
        if self._warming is not None:
            self._warming.ended(item.function)
        if self._sharing is not None:
            self._sharing.left(item, self.workload.functions[item.function].duty, now)
        used = (now - item.began) * item.share
        self.busy_s += used
        self.tenant_s[self.workload.tenant[item.call]] += used
        if self._fair is not None:
            self._fair.used(item.call, used)
        item.call = -1
        item.version += 1

    def _rest(self, item: Instance) -> None:
        """An instance has nothing to do: it stays warm for a while, or goes."""
        if self._stay_s <= 0:
            self._close(item, idle=False)
            return
        self._idle[item.function].append(item)
        self._idles(item)

    def _idles(self, item: Instance) -> None:
        item.idle_since = self.now
        self._idling.rest(item)
        self._freed += 1
        if not item.expiring:
            item.expiring = True
            self._made += 1
            heapq.heappush(self._events, (self.now + self._stay_s, self._made, EXPIRE, item, 0))

    def _expire(self, item: Instance, at: float) -> None:
        """One event per instance: it is moved on while the instance is in use."""
        if item.dead:
            return
        until = item.idle_since + self._stay_s
        if item.call >= 0:
            item.expiring = False
        elif until > at:
            self._made += 1
            heapq.heappush(self._events, (until, self._made, EXPIRE, item, 0))
        else:
            self.now = at
            self._close(item)
            if self._waiting:
                self._serve_waiting()

    def _close(self, item: Instance, *, idle: bool = True) -> None:
        if idle:
            self._idle[item.function].remove(item)
            self._idling.leave(item)
        self.machine.free(item, self.now)
        self._freed += 1
        self._untrack(item)

    # --- learned keep-warm --------------------------------------------------------------------
    def _look(self, _: int) -> None:
        """Asks which idle instances go and which are started ahead; those that wait for room come first."""
        assert self._warming is not None
        gone, ahead = self._warming.look(self._idling.everything, self.now, waits=bool(self._waiting))
        for item in gone:
            if item in self._idling.unused and not self._queues[item.function]:
                self._close(item)
        if self._waiting:
            self._serve_waiting()
        if ahead is not None:
            self._start_ahead(*ahead)
        next_event = min(self._next_arrival, self._events[0][0]) if self._events else self._next_arrival
        self._later(LOOK_S if self._waiting else self._warming.next_look_s(self.now, next_event), LOOK, 0)

    def _start_ahead(self, function: int, device: int | None, displaced: Instance | None) -> None:
        """Where there is room, or in place of one that is still idle; loaded ones of its function are used first."""
        request = self._requests[function]
        if displaced is not None:
            if displaced not in self._idling.unused or self._queues[displaced.function]:
                return
            self._close(displaced)
        if device is None:
            found = self.machine.place(function, request, self.now)
            item = None if isinstance(found, Refusal) else found
        else:
            item = self.machine.place_on(device, function, request, self.now)
        if item is not None:
            self.ahead += 1
            self._track(item)
            item.ready_at = self.now + self._load_s(item)
            self._idle[function].insert(0, item)
            self._idles(item)

    def _wanted(self, items: Iterable[Instance]) -> dict[Instance, float]:
        assert self._warming is not None
        return self._warming.wanted(items, self.now)

    # --- moves --------------------------------------------------------------------------------
    def _give_up_devices(self, mover: Mover) -> None:
        while moves := mover.wanted(self.now):
            for item, to in moves:
                self._move(item, to, mover.rules.copy_s, mover.rules.pause_s)

    def _move(self, item: Instance, to: Placement, copy_s: float, pause_s: float) -> None:
        """It stands still for a moment and goes on elsewhere; its old place is held until all is copied."""
        duty = self.workload.functions[item.function].duty
        if self._sharing is not None:
            self._sharing.left(item, duty, self.now)
        self._untrack(item)
        old = self.machine.move(item, to, self.now, copy_s, pause_s)
        self._track(item)
        item.version += 1
        if self._sharing is None:
            item.work += pause_s
            self._later_end(item, item.began + item.work)
        else:
            item.work += pause_s - (self.now - item.updated) / item.slow
            self._sharing.joined(item, duty, self.now)
        self._made += 1
        self._copying += 1
        heapq.heappush(self._events, (self.now + copy_s, self._made, COPIED, old, 0))

    def _copied(self, old: Instance) -> None:
        self._copying -= 1
        self.machine.free(old, self.now)
        self._freed += 1
        if self._waiting:
            self._serve_waiting()

    # --- waiting ------------------------------------------------------------------------------
    def _serve_waiting(self) -> None:
        """Something was freed: start all that fits, in the order of fairness; each shape is refused at most once."""
        refused, shapes = self._refused, self._shapes
        for function in self._order():
            idle, queue = self._idle[function], self._queues[function]
            if refused.get(shapes[function]) == self._freed and not idle:  # as of most, where many wait
                continue
            while queue:
                if idle:
                    self._use(idle.pop(), self._next(queue))
                    continue
                placed = self._open(function)
                if not isinstance(placed, Instance):
                    break
                self._start_cold(placed, self._next(queue))
            if not queue:
                del self._waiting[function]

    def _order(self) -> list[int]:
        """Waiting functions: by the turn of the tenant of their first call, or by age."""
        if self._fair is None or len(self._waiting) < 2:
            return list(self._waiting)
        queues, turn = self._queues, self._fair.turn
        return sorted(self._waiting, key=lambda name: (turn(queues[name][0]), queues[name][0]))

    # --- failures -----------------------------------------------------------------------------
    def _first_failures(self) -> None:
        if self.rules.mtbf_h:
            for device in range(self.machine.devices):
                self._later(self._random.expovariate(1 / (self.rules.mtbf_h * 3600)), FAIL, device)

    def _later(self, after_s: float, kind: int, device: int) -> None:
        self._made += 1
        heapq.heappush(self._events, (self.now + after_s, self._made, kind, device, 0))

    def _fail(self, device: int) -> None:
        """Its instances are gone; their calls go first in their queues."""
        self.failures += 1
        self._down += 1
        self.machine.set_health(device, False)
        for item in list(self._on.get(device, ())):
            call = item.call
            if call >= 0:
                self.lost_s += (self.now - item.began) * item.share
                self._stop(item)
                self._try_again(call, item.function)
            self._close(item, idle=call < 0)
        self._later(self._random.expovariate(1 / self.rules.mttr_s), REPAIR, device)
        if self._waiting:
            self._serve_waiting()

    def _try_again(self, call: int, function: int) -> None:
        """Unless it has been tried often enough."""
        self._attempts[call] += 1
        if self._attempts[call] == MOST_ATTEMPTS:
            self.lost += 1
            self.done_s[call] = -1.0
            return
        self.retried += 1
        self._queue(call, self._queues[function].appendleft)
        self._waiting[function] = None

    def _repair(self, device: int) -> None:
        self._down -= 1
        self._vain += 1
        self.machine.set_health(device, True)
        self._freed += 1
        self._later(self._random.expovariate(1 / (self.rules.mtbf_h * 3600)), FAIL, device)
        if self._waiting:
            self._serve_waiting()

    @property
    def waiting(self) -> int:
        return sum(len(self._queues[function]) for function in self._waiting)
