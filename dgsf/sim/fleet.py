"""The instances of a simulation: opened where placement says, warm and idle, given up for others, closed.

A function's idle instances are a stack, so a warm call touches only lists.  Placement is asked only for new instances,
and is not asked again for a shape that was refused until something is freed.  Which call an instance runs, and when, is
the engine's.
"""

from __future__ import annotations

from collections.abc import Callable

from dgsf.core.placement import Placement, Refusal, Request
from dgsf.sim.agenda import EXPIRE, Agenda
from dgsf.sim.deadlines import Due
from dgsf.sim.hostcache import HostCache
from dgsf.sim.idling import Idling
from dgsf.sim.instance import Instance
from dgsf.sim.machine import Machine
from dgsf.sim.rules import Rules
from dgsf.sim.workload import FunctionSpec

# function, its request, a place on a device in no use, now: the idle instance whose place it takes instead
InsteadOfOpening = Callable[[int, Request, Placement, float], Instance | None]


class Fleet:
    """All instances, and what is known of those that found no place."""

    def __init__(
        self, functions: list[FunctionSpec], requests: list[Request], machine: Machine, rules: Rules, agenda: Agenda
    ) -> None:
        self.machine = machine
        self.stay_s = rules.idle_s  # how long an idle one stays
        self.requests = requests
        self.idle: list[list[Instance]] = [[] for _ in functions]
        self.idling = Idling(machine.pool)
        self.on: dict[int, dict[Instance, None]] = {}  # device: its instances, if devices fail or calls move
        self.instead_of_opening: InsteadOfOpening | None = None
        self.evicted = 0
        self.freed = 0  # rises whenever something may have become placeable
        self._functions = functions
        self._rules = rules
        self._agenda = agenda
        self._tracked = bool(rules.mtbf_h or rules.moves)
        numbers: dict[object, int] = {}
        self.shapes = [numbers.setdefault(self._shape(each), len(numbers)) for each in requests]  # of functions
        self._refused: dict[int, int] = {}  # shape: `freed` when it was refused
        self._why: dict[int, Refusal] = {}  # shape: its last refusal
        self._hosts: dict[int, HostCache] = {}  # by row: what is in the node's memory

    def _shape(self, request: Request) -> object:
        """Requests of one shape find room or find none alike; a tenant's own slices are no room for others."""
        return (request.shape, request.tenant) if self.machine.makes_slices else request.shape

    # --- opening ------------------------------------------------------------------------------
    def open(self, function: int, now: float, due: Due | None = None) -> Instance | Refusal | None:
        """A new instance; idle ones of others may give way.  None: refused before, nothing freed since."""
        refusal = self.refusal(function)
        if refusal is not None and not refusal.ever:
            return refusal
        if self.was_refused(function):
            return None
        request = self.requests[function] if due is None else due.told_to(self.requests[function])
        placed = self._placed(function, request, now)
        if isinstance(placed, Refusal) and placed.ever:
            placed = self.make_room(function, request, placed, now)
        if isinstance(placed, Refusal):
            self._refused[self.shapes[function]] = self.freed
            self._why[self.shapes[function]] = placed
        else:
            self.track(placed)
        return placed

    def was_refused(self, function: int) -> bool:
        """Its shape found no place, and nothing was freed since."""
        return self._refused.get(self.shapes[function]) == self.freed

    def refusal(self, function: int) -> Refusal | None:
        """Why its shape found no place when it was last asked for; None: it always did."""
        return self._why.get(self.shapes[function])

    def ask_again(self) -> None:
        """Whatever was refused may be asked for once more."""
        self._refused.clear()

    def _placed(self, function: int, request: Request, now: float) -> Instance | Refusal:
        """Where placement says, unless that is a device in no use and an idle instance elsewhere should rather go."""
        found = self.machine.find(request, now)
        if isinstance(found, Refusal):
            return found
        if self.instead_of_opening is not None and self.machine.opens(found):
            victim = self.instead_of_opening(function, request, found, now)
            if victim is not None:
                self._give_up([victim], now)
                instead = self.machine.place_on(victim.devices[0], function, request, now)
                assert instead is not None, "only who makes room is given up"
                return instead
        return self.machine.book(function, request, found, now)

    def make_room(self, function: int, request: Request, refusal: Refusal, now: float) -> Instance | Refusal:
        """Gives idle instances up, if that helps, and asks again."""
        share = self.machine.takes(request)
        if share is None:
            return Refusal(refusal.reason, ever=False)
        victims = self.idling.to_give_up(request, share, now)
        self._give_up(victims, now)
        return self.machine.place(function, request, now) if victims else refusal

    def _give_up(self, victims: list[Instance], now: float) -> None:
        """For another that takes their place at once: nothing else becomes placeable."""
        freed = self.freed
        for victim in victims:
            self.close(victim, now)
        self.freed = freed
        self.evicted += len(victims)

    def open_ahead(self, function: int, device: int | None, now: float) -> Instance | None:
        """A new instance that no call waits for, on this device or wherever there is room; it is used after others."""
        request = self.requests[function]
        if device is None:
            found = self.machine.place(function, request, now)
            item = None if isinstance(found, Refusal) else found
        else:
            item = self.machine.place_on(device, function, request, now)
        if item is not None:
            self.track(item)
            item.ready_at = now + self.load_s(item)
            self.idle[function].insert(0, item)
            self._idles(item, now)
        return item

    def load_s(self, item: Instance) -> float:
        """What a load takes here: the fork, and the weights from the node's memory or over the network."""
        spec = self._functions[item.function]
        if not spec.weights_mib:
            return self._rules.start_s
        near = self._host(item.row).load(item.function, spec.weights_mib)
        speed = self._rules.host_mib_per_s if near else self._rules.network_mib_per_s
        return self._rules.start_s + spec.weights_mib / speed

    def _host(self, row: int) -> HostCache:
        host = self._hosts.get(row)
        if host is None:
            host = self._hosts[row] = HostCache(self.machine.host_mib(row))
        return host

    # --- idle ---------------------------------------------------------------------------------
    def rest(self, item: Instance, now: float) -> None:
        """It has nothing to do: it stays warm for a while, or goes."""
        if self.stay_s <= 0:
            self.close(item, now, idle=False)
            return
        self.idle[item.function].append(item)
        self._idles(item, now)

    def _idles(self, item: Instance, now: float) -> None:
        item.idle_since = now
        self.idling.rest(item)
        self.freed += 1
        if not item.expiring:
            item.expiring = True
            self._agenda.add(now + self.stay_s, EXPIRE, item)

    def expire(self, item: Instance, at: float) -> bool:
        """Whether its time was up and it went.  One event per instance: it is moved on while that is in use."""
        if item.dead:
            return False
        until = item.idle_since + self.stay_s
        if item.call >= 0:
            item.expiring = False
        elif until > at:
            self._agenda.add(until, EXPIRE, item)
        else:
            self.close(item, at)
            return True
        return False

    def warm_after_s(self, now: float) -> float:
        """Device-seconds that idle instances hold after the last call; where that is learned, what `idle_s` allows."""
        until: dict[int, float] = {}
        for item in self.idling.unused:
            for device in item.devices:
                until[device] = max(until.get(device, now), item.idle_since + self._rules.idle_s)
        return sum(at - now for at in until.values())

    # --- closing ------------------------------------------------------------------------------
    def close(self, item: Instance, now: float, *, idle: bool = True) -> None:
        if idle:
            self.idle[item.function].remove(item)
            self.idling.leave(item)
        self.free(item, now)
        self.untrack(item)

    def free(self, item: Instance, now: float) -> None:
        """Its place is free again."""
        self.machine.free(item, now)
        self.freed += 1

    def track(self, item: Instance) -> None:
        self.idling.opened(item)
        for device in item.devices if self._tracked else ():
            self.on.setdefault(device, {})[item] = None

    def untrack(self, item: Instance) -> None:
        self.idling.closed(item)
        for device in item.devices if self._tracked else ():
            self.on[device].pop(item, None)
