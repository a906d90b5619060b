"""Learned keep-warm in a simulation: the rule that proxies ask (`core.warmth`), asked about simulated instances.

As in production, it is asked twice a second of virtual time, but not while nothing happens and it would have nothing
to say.  It is told which instances there are and how many of each function calls have kept busy since, and answers
which to give up and which to start ahead.  It also says who is wanted least when one must give way, and who goes
rather than that another device is opened.  It decides nothing of its own; opening and closing are the fleet's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median_low

from dgsf.core.placement import Request
from dgsf.core.placement.model import WHOLE
from dgsf.core.shadow import DEVICE, Room, Slot
from dgsf.core.warmth import Ahead, Order, Release, Warm, Warmth
from dgsf.errors import UsageError
from dgsf.sim.instance import Instance
from dgsf.sim.machine import Machine
from dgsf.sim.rules import Rules
from dgsf.sim.workload import Workload

# as in `proxy.keeping`:
LOOK_S = 0.5  # sums of which are exact
ROUNDED = 1e-6  # of a look: other times are not
LONGEST_S = 3600.0  # nobody stays idle for longer
AHEAD_AT_ONCE = 2
AHEAD_PAUSE_S = 1.0
PUT_OFF_S = 30.0
LONGEST_TAIL_S = 2e6  # that calls may go on after the last has come: with a look twice a second it takes half an hour
SETTLED_S = 1.0  # as in `proxy.room`: one with workers takes the place of none that was idle for less
# function, device (None: wherever there is room), the idle instance that it displaces there
Start = tuple[int, int | None, Instance | None]


class Warming:
    """What the rule is told, and what it said."""

    def __init__(self, workload: Workload, requests: list[Request], rules: Rules, machine: Machine) -> None:
        """A device has as many slots as instances of the usual share; a load takes what the usual weights take."""
        _check_tail(workload, machine)
        shares = [WHOLE if item.devices else item.share or 0 for item in requests]
        slots = WHOLE // max(1, median_low([share for share in shares if share] or [WHOLE]))
        weights_mib = median_low([item.weights_mib for item in workload.functions])
        self._warmth = Warmth(slots, rules.start_s + weights_mib / rules.network_mib_per_s, rules.idle_s)
        self._machine = machine
        self._takes: dict[tuple[str, int], Slot] = {}
        self._busy = [0] * len(requests)
        self._reached: dict[str, set[int]] = {}
        self._ahead_at = -AHEAD_PAUSE_S
        self._quiet = False  # no call had begun before the last look, it ordered nothing, and nothing is put off
        self._put_off: dict[Start, float] = {}  # to be tried again until then
        self.longest_s = max(rules.idle_s, LONGEST_S)

    def began(self, function: int) -> None:
        """A call of it starts."""
        self._busy[function] += 1
        self._reached.setdefault(str(function), set()).add(self._busy[function])

    def ended(self, function: int) -> None:
        self._busy[function] -= 1

    def look(self, items: list[Instance], now: float, *, waits: bool) -> tuple[list[Instance], Start | None]:
        """Who goes, and what is started ahead: one at a time, and nothing while calls wait for room."""
        reached, self._reached = self._reached, {}
        self._warmth.pass_over(now)
        self._warmth.there_is({name: Room(count, count * DEVICE) for name, count in self._machine.healthy.items()})
        orders: list[Order] = self._warmth.look(self._warm(items), reached, now)
        gone = [items[order.key] for order in orders if isinstance(order, Release)]
        starts = [
            (int(order.function), order.device, None if order.displaces is None else items[order.displaces])
            for order in orders
            if isinstance(order, Ahead)
        ]
        self._quiet = not (reached or orders or self._put_off)
        loading = sum(item.ready_at > now for item in items)
        busy = waits or now - self._ahead_at < AHEAD_PAUSE_S or loading >= AHEAD_AT_ONCE
        return gone, self._next(starts, {item.function for item in items}, now, busy=busy)

    def next_look_s(self, now: float, next_event: float) -> float:
        """In how long to look again, a multiple of the usual time: once more before `next_event` changes the world.

        What is there at a look counts for the time since the last one, so that must not reach over a change.  Calls
        that wait change nothing by waiting: only an event gives them room, or a look that orders something.
        """
        if not self._quiet or self._reached or math.isinf(next_event):
            return LOOK_S
        quiet = (self._warmth.quiet_until() - now) / LOOK_S - ROUNDED
        until_event = math.ceil((next_event - now) / LOOK_S) - 1
        return LOOK_S * max(1.0, until_event if quiet > until_event else math.ceil(quiet))

    def _next(self, starts: list[Start], there: set[int], now: float, *, busy: bool) -> Start | None:
        """A regular function's start is not said again, so it is remembered for a while."""
        self._put_off = {start: until for start, until in self._put_off.items() if now < until}
        wanted = [
            start for start in dict.fromkeys([*self._put_off, *starts]) if start[1] is not None or start[0] not in there
        ]
        chosen = None if busy or not wanted else wanted[0]
        for start in wanted:
            if start[1] is None and start != chosen:
                self._put_off.setdefault(start, now + PUT_OFF_S)
        if chosen is not None:
            self._put_off.pop(chosen, None)
            self._ahead_at = now
        return chosen

    def has_some(self, function: int) -> bool:
        """Whether instances of it are busy."""
        return self._busy[function] > 0

    def victim(self, items: list[Instance], able: list[Instance], now: float) -> Instance | None:
        """Which of those that are able to makes room for a call; None: better open another device."""
        keys = {item: key for key, item in enumerate(items)}
        gone = self._warmth.victim(self._warm(items), {keys[item] for item in able}, now)
        return None if gone is None else items[gone]

    def wanted(self, items: Iterable[Instance], now: float) -> dict[Instance, float]:
        """How soon each is expected to be used."""
        listed = list(items)
        rates = self._warmth.rates(self._warm(listed), now)
        return dict(zip(listed, rates, strict=True))

    def _warm(self, items: list[Instance]) -> list[Warm]:
        return [
            Warm(
                key, str(item.function), item.devices[0], None if item.call >= 0 else item.idle_since, self._kind(item)
            )
            for key, item in enumerate(items)
        ]

    def _kind(self, item: Instance) -> Slot:
        """One object for all that take the same; who joins a slice takes next to nothing more."""
        kind = (self._machine.types[item.devices[0]], item.placement.share)
        slot = self._takes.get(kind)
        if slot is None:
            slot = self._takes[kind] = Slot(kind[0], max(1, kind[1] * DEVICE // WHOLE))
        return slot


def _check_tail(workload: Workload, machine: Machine) -> None:
    """Looks are few while calls arrive and little waits; after that there is nothing but looks until the last ends."""
    tail_s = _least_tail_s(workload, machine)
    if tail_s > LONGEST_TAIL_S:
        told = f"calls go on for {tail_s:,.0f} s or more after the last one has come, and it looks twice a second"
        raise UsageError(
            f"--keep-warm learned: {told}; {LONGEST_TAIL_S:,.0f} s is the most (lower --run-s, or --keep-warm fixed:60)"
        )


def _least_tail_s(workload: Workload, machine: Machine) -> float:
    """How long it takes at least from the last arrival to the last end, on the fastest of these devices."""
    fastest = float(machine.pool.speed.max(initial=1.0))
    ends = work = 0.0
    for at, function, run_s in zip(workload.arrival_s, workload.function, workload.run_s, strict=True):
        spec = workload.functions[function]
        took = spec.took_s(run_s, fastest)
        ends = max(ends, at + took)
        work += took * (spec.devices or spec.share / WHOLE)
    begun, last = (workload.arrival_s[0], workload.arrival_s[-1]) if workload.arrival_s else (0.0, 0.0)
    return max(ends, begun + work / max(1, machine.devices)) - last
