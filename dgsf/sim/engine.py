"""The discrete-event simulator: calls arrive, find a warm instance or a new one, run, wait, fail and are retried.

It owns the loop and the calls.  Instances are the fleet's, what is to come is on the agenda, and each assumption that
can be left out (failures, learned keep-warm, moves, sharing, fairness) is a part of its own.  The same workload, pool,
rules and seed give the same result, bit for bit: nothing here reads a clock or an unseeded random number.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections import Counter

from dgsf.core.placement import Placement, Refusal, Request
from dgsf.sim.agenda import COPIED, END, EXPIRE, FAIL, REPAIR, Agenda
from dgsf.sim.deadlines import Deadlines
from dgsf.sim.failing import Failures
from dgsf.sim.fairness import FairClock
from dgsf.sim.fleet import Fleet
from dgsf.sim.instance import Instance
from dgsf.sim.keeping import Keeping
from dgsf.sim.machine import Machine, request_of
from dgsf.sim.moving import Mover
from dgsf.sim.pools import PoolSpec
from dgsf.sim.progress import Progress, Steps
from dgsf.sim.rules import Rules
from dgsf.sim.sharing import Sharing, contended
from dgsf.sim.timeline import Timeline
from dgsf.sim.useless import mix_of
from dgsf.sim.waiting import Waiting
from dgsf.sim.warming import Warming
from dgsf.sim.workload import Workload


class Simulator:
    """One run of one workload on one pool under one policy."""

    def __init__(self, workload: Workload, spec: PoolSpec, policy: str, rules: Rules) -> None:
        self.workload = workload
        self.rules = rules
        self.policy = policy
        requests = _requests(workload, rules)
        self.machine = Machine(spec, policy, rules.seed, mix_of(workload, requests))
        self.now = self._next_arrival = 0.0
        self.agenda = Agenda()
        self.fleet = Fleet(workload.functions, requests, self.machine, rules, self.agenda)
        self.failures = Failures(rules, self.machine, self.agenda)
        self._fair = FairClock(len(workload.tenants), len(workload.functions)) if rules.fair else None
        self._waiting = self._nobody_waits()
        self._queued_at: dict[int, float] = {}  # calls that wait: since when
        self._waited_s, self._waited_at = 0.0, 0.0  # of all calls that have waited or do, until then
        warming = Warming(workload, requests, rules, self.machine) if rules.learned else None
        self._warming = warming
        self.keeping = Keeping(warming, self.fleet, self.agenda, self._waiting.queues) if warming else None
        self.mover = Mover(rules.moves, rules.idle_s, self.machine.pool, self.fleet.on) if rules.moves else None
        self._sharing = Sharing(rules.interference, self._later_end) if contended(workload, rules) else None
        self._deadlines = Deadlines(workload, rules) if self.machine.learns else None
        self._running = 0
        self._copying = 0  # places that are held until a move is done
        self._progress = Steps(None, workload.calls)
        self.timeline = Timeline(workload)
        self.wait_s = array("d", bytes(8 * workload.calls))  # not a number: never started
        self.done_s = array("d", bytes(8 * workload.calls))  # arrival to end; negative: never ran
        self.tenant_s = [0.0] * len(workload.tenants)
        self.busy_s = 0.0  # device-seconds of calls
        self.cold = self.refused = 0
        self.why_refused: Counter[str] = Counter()

    # --- the loop -----------------------------------------------------------------------------
    def run(self, progress: Progress | None = None) -> Simulator:
        """All calls to their end."""
        arrivals, calls = self.workload.arrival_s, self.workload.calls
        self._progress = Steps(progress, calls)
        events, pop, index, timeline = self.agenda.events, heapq.heappop, 0, self.timeline
        while index < calls:
            self._next_arrival = at = arrivals[index]
            while events and events[0][0] <= at:
                self._handle(*pop(events))
            if at > timeline.next_s:
                timeline.reach(at, self)
            self.now = at
            self._arrive(index)
            index += 1
        self._next_arrival = math.inf
        while (self._running or self._copying or self._can_go_on()) and events:
            self._handle(*pop(events))
        timeline.close(self)
        self._give_up()
        self.machine.close(self.now)
        return self

    def _handle(self, at: float, _: int, kind: int, what: Instance | int, version: int) -> None:
        if at > self.timeline.next_s:
            self.timeline.reach(at, self)
        if isinstance(what, Instance):
            if kind == END:
                if what.version == version:
                    self.now = at
                    self._ended(what)
            elif kind == EXPIRE:
                self._expire(what, at)
            else:
                assert kind == COPIED
                self.now = at
                self._copied(what)
        else:
            self.now = at
            (self._fail if kind == FAIL else self._repair if kind == REPAIR else self._look)(what)

    def _can_go_on(self) -> bool:
        """Nothing runs: whether waiting calls may still get a place."""
        if not self._waiting:
            return False
        self.fleet.ask_again()
        self._serve_waiting()
        return self._running > 0 or bool(self.fleet.idling.unused) or self.failures.may_help()

    def _give_up(self) -> None:
        for function, queue in enumerate(self._waiting.queues):
            refusal = self.fleet.refusal(function)
            why = "no place was found" if refusal is None else refusal.reason.removesuffix(" now")
            for call in queue:
                self._refuse(call, f"waited to the end: {why}")

    def _refuse(self, call: int, why: str) -> None:
        self.refused += 1
        self.why_refused[why] += 1
        self.wait_s[call] = math.nan
        self.done_s[call] = -1.0
        self._progress.one_more()

    # --- calls --------------------------------------------------------------------------------
    def _arrive(self, call: int) -> None:
        function = self.workload.function[call]
        if self._fair is not None:
            self._fair.comes(self.workload.tenant[call])
        idle = self.fleet.idle[function]
        if idle:
            self._use(idle.pop(), call)
            return
        if not self._waiting.queues[function]:
            placed = self._open(function, call)
            if isinstance(placed, Instance):
                self._start_cold(placed, call)
                return
            if placed is not None and not placed.ever:
                self._refuse(call, placed.reason)
                return
        self._queue(call)

    def _open(self, function: int, call: int) -> Instance | Refusal | None:
        due = None if self._deadlines is None else self._deadlines.of(call, self.now)
        return self.fleet.open(function, self.now, due)

    def _use(self, item: Instance, call: int) -> None:
        """A call takes an idle instance; one that was started ahead may still be loading."""
        self.fleet.idling.leave(item)
        load_s = max(0.0, item.ready_at - self.now)
        self.cold += load_s > 0
        self._start(item, call, load_s)

    def _queue(self, call: int) -> None:
        self._meter_waiting()
        self._waiting.add(call)
        self._queued_at[call] = self.now
        if self._fair is not None:
            self._fair.waits(self.workload.tenant[call], 1)

    def _next(self, function: int) -> int:
        """Its oldest call waits no longer."""
        self._meter_waiting()
        call = self._waiting.take(function)
        self.wait_s[call] += self.now - self._queued_at.pop(call)
        if self._fair is not None:
            self._fair.waits(self.workload.tenant[call], -1)
        return call

    def _start_cold(self, item: Instance, call: int) -> None:
        self.cold += 1
        self._start(item, call, self.fleet.load_s(item))

    def _start(self, item: Instance, call: int, load_s: float) -> None:
        now = self.now
        item.call = call
        item.began = now
        item.loaded = load_s
        spec = self.workload.functions[item.function]
        item.work = load_s + spec.took_s(self.workload.run_s[call], item.speed)
        item.version += 1
        self._running += 1
        self.failures.vain = 0
        if self._fair is not None:
            item.charged = self._fair.starts(self.workload.tenant[call], item.function, item.share)
        if self._warming is not None:
            self._warming.began(item.function)
        if self._sharing is None:
            self.agenda.add(now + item.work, END, item, item.version)
        else:
            self._sharing.joined(item, spec.duty_on(item.speed), now)

    def _later_end(self, item: Instance, at: float) -> None:
        self.agenda.add(at, END, item, item.version)

    def _ended(self, item: Instance) -> None:
        call, now = item.call, self.now
        if self._deadlines is not None:
            run_s = now - item.began - item.loaded
            self._deadlines.ran(item.function, self.machine.ran(item, run_s), run_s)
        if self._fair is not None:
            self._fair.took(item.function, now - item.began)
        self._stop(item)
        self.done_s[call] = now - self.workload.arrival_s[call]
        self._progress.one_more()
        queue = self._waiting.queues[item.function]
        if queue and self._may_go_on(queue[0]):
            self._start(item, self._next(item.function), 0.0)
            return
        self.fleet.rest(item, now)
        if self._waiting:
            self._serve_waiting()
        if self.mover is not None:
            self._give_up_devices(self.mover)

    def _may_go_on(self, call: int) -> bool:
        """Whether a warm instance takes its function's next call at once: its tenant is not far ahead of others.

        First come, first served: no older call waits.
        """
        if self._fair is None:
            return not self._waiting.anyone_before(0.0, call)
        behind = self._fair.clock[self.workload.tenant[call]] - self.rules.quantum_s
        return not self._waiting.anyone_before(behind, 0)

    def _stop(self, item: Instance) -> None:
        """The call of an instance is over, one way or another; its device time counts."""
        now = self.now
        self._running -= 1
        if self._warming is not None:
            self._warming.ended(item.function)
        if self._sharing is not None:
            self._sharing.left(item, now)
        used, tenant = (now - item.began) * item.share, self.workload.tenant[item.call]
        self.busy_s += used
        self.tenant_s[tenant] += used
        if self._fair is not None and self._fair.stops(tenant, item.charged, used):
            self._waiting.lowered(tenant)
        item.call = -1
        item.version += 1

    # --- waiting ------------------------------------------------------------------------------
    def _nobody_waits(self) -> Waiting:
        """First come, first served: all are one tenant."""
        functions, shapes = self.workload.function, self.fleet.shapes
        if self._fair is None:
            return Waiting(functions, shapes, [0] * len(shapes), [0.0])
        return Waiting(functions, shapes, self.workload.owners(), self._fair.clock)

    def _serve_waiting(self) -> None:
        """Something was freed: start all that fits, one by one whose turn it is; each shape is refused at most once."""
        waiting = self._waiting
        turns = [(turn, shape) for shape in waiting.shapes if (turn := waiting.first(shape)) is not None]
        heapq.heapify(turns)
        while turns:
            before, shape = turns[0]
            turn = waiting.first(shape)
            if turn is None:
                heapq.heappop(turns)
            elif turn != before:  # a call was started since
                heapq.heapreplace(turns, (turn, shape))
            elif not self._serve(turn[1]):
                heapq.heappop(turns)

    def _serve(self, call: int) -> bool:
        """Starts a waiting call, the first of its function, if there is a place."""
        function = self.workload.function[call]
        idle = self.fleet.idle[function]
        if idle:
            self._use(idle.pop(), self._next(function))
            return True
        placed = self._open(function, call)
        if isinstance(placed, Instance):
            self._start_cold(placed, self._next(function))
        return isinstance(placed, Instance)

    @property
    def waiting(self) -> int:
        return self._waiting.count

    def _meter_waiting(self) -> None:
        self._waited_s, self._waited_at = self.waited_until(self.now), self.now

    def waited_until(self, now: float) -> float:
        """Calls x seconds from the start; nobody has come or gone since the last meter."""
        return self._waited_s + self._waiting.count * (now - self._waited_at)

    # --- what becomes of instances ------------------------------------------------------------
    def _expire(self, item: Instance, at: float) -> None:
        if self.fleet.expire(item, at):
            self.now = at
            if self._waiting:
                self._serve_waiting()

    def _look(self, _: int) -> None:
        """Learned keep-warm is asked what goes and what is started ahead; those that wait for room come first."""
        assert self.keeping is not None
        ahead = self.keeping.look(self.now, waits=bool(self._waiting))
        if self._waiting:
            self._serve_waiting()
        if ahead is not None:
            self.keeping.start_ahead(ahead, self.now)
        self.keeping.look_again(self.now, self._next_arrival)

    def _fail(self, device: int) -> None:
        """Its instances are gone; their calls wait again, as old as they are."""
        self.failures.failed(device, self.now)
        for item in list(self.fleet.on.get(device, ())):
            call = item.call
            if call >= 0:
                self.failures.lost_s += (self.now - item.began) * item.share
                self._stop(item)
                self._try_again(call)
            self.fleet.close(item, self.now, idle=call < 0)
        self.failures.repair_later(device, self.now)
        if self._waiting:
            self._serve_waiting()

    def _try_again(self, call: int) -> None:
        if not self.failures.try_again(call):
            self.done_s[call] = -1.0
            self._progress.one_more()
            return
        if self._fair is not None:
            self._fair.comes(self.workload.tenant[call])
        self._queue(call)

    def _repair(self, device: int) -> None:
        self.failures.repaired(device, self.now)
        self.fleet.freed += 1
        if self._waiting:
            self._serve_waiting()

    # --- moves --------------------------------------------------------------------------------
    def _give_up_devices(self, mover: Mover) -> None:
        while moves := mover.wanted(self.now):
            for item, to in moves:
                self._move(item, to, mover.rules.copy_s, mover.rules.pause_s)

    def _move(self, item: Instance, to: Placement, copy_s: float, pause_s: float) -> None:
        """It stands still for a moment and goes on elsewhere; its old place is held until all is copied."""
        if self._sharing is not None:
            self._sharing.left(item, self.now)
        self.fleet.untrack(item)
        old = self.machine.move(item, to, self.now, copy_s, pause_s)
        self.fleet.track(item)
        item.version += 1
        if self._sharing is None:
            item.work += pause_s
            self._later_end(item, item.began + item.work)
        else:
            item.work += pause_s - (self.now - item.updated) / item.slow
            duty = self.workload.functions[item.function].duty_on(item.speed)
            self._sharing.joined(item, duty, self.now)
        self._copying += 1
        self.agenda.add(self.now + copy_s, COPIED, old)

    def _copied(self, old: Instance) -> None:
        self._copying -= 1
        self.fleet.free(old, self.now)
        if self._waiting:
            self._serve_waiting()


def _requests(workload: Workload, rules: Rules) -> list[Request]:
    """What placement is asked for an instance of each function."""
    owners = workload.owners()
    durations = workload.lives_s() if rules.durations else {}
    return [
        request_of(
            item, workload.tenants[owners[index]], exclusive=rules.exclusive, duration_s=durations.get(index, 0.0)
        )
        for index, item in enumerate(workload.functions)
    ]
