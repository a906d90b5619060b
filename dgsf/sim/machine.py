"""The simulated pool: placement of `core` over a pool specification, with meters of what is held.

It books and frees through the same Placer and Pool that production uses, and integrates over time what is allocated,
how many devices hold anything and what that costs.  It knows no calls.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from random import Random

import numpy as np

from dgsf.core.placement import DeviceView, NodeView, Placement, Placer, Pool, Refusal, Request, make_policy
from dgsf.core.placement.model import Whose
from dgsf.core.placement.need import Need
from dgsf.core.placement.policy import placed
from dgsf.core.placement.slices import Conspirator
from dgsf.sim.instance import Instance
from dgsf.sim.pools import Node, PoolSpec
from dgsf.sim.resident import DrawnPlacer, Resident
from dgsf.sim.truespeeds import true_speeds
from dgsf.sim.useless import Mix, Useless
from dgsf.sim.workload import FunctionSpec

WHOLE = 1000
_MIB = 2**20


def device_views(spec: PoolSpec) -> list[DeviceView]:
    """Every device of the pool, empty and healthy."""
    views: list[DeviceView] = []
    for node in spec.nodes:
        figures = spec.figures(node.type)
        memory = figures.memory_mib * _MIB
        for _ in range(node.devices):
            views.append(
                DeviceView(
                    id=len(views), type=node.type, kind=node.type, healthy=True, slots=1, memory_bytes=memory,
                    free_slots=1, free_memory=memory, speed=figures.speed, price=figures.price_per_h,
                    node=node.name, free_share=WHOLE,
                )
            )  # fmt: skip
    return views


def node_view(node: Node) -> NodeView:
    """A node of which nothing is taken."""
    memory = node.memory_mib * _MIB
    return NodeView(node.name, node.cpu_milli, memory, node.cpu_milli, memory)


def request_of(spec: FunctionSpec, tenant: str, *, exclusive: bool, duration_s: float = 0.0) -> Request:
    """What placement is asked for one instance of a function."""
    whole = exclusive and spec.devices == 0 and spec.share > 0
    return Request(
        types=spec.types,
        memory_bytes=math.ceil(spec.weights_mib + spec.work_mib) * _MIB,
        tenant=tenant,
        function=spec.name,
        share=WHOLE if whole else (None if spec.devices else spec.share),
        devices=1 if whole else spec.devices,
        cpu_milli=spec.cpu_milli,
        host_memory=spec.host_memory_mib * _MIB,
        duration_s=duration_s,
        scales=spec.scales,
        weights=spec.name if spec.weights_mib else "",
    )


class Machine:
    """Devices, what is booked on them, and the meters."""

    def __init__(self, spec: PoolSpec, policy: str, seed: int, mix: Mix = ()) -> None:
        """`mix`: what calls ask for, by which room counts as useless."""
        views = device_views(spec)
        self._nodes = [node_view(node) for node in spec.nodes]
        self.pool = Pool.of(views, self._nodes)
        self.useless = Useless(self.pool, mix)
        self._speeds = spec.speeds
        self._policy = make_policy(policy, spec.speeds)
        self._residency = Resident(self.pool)
        placer = Placer(self.pool, self._policy, Random(seed))  # noqa: S311  # a simulation
        self._placer = DrawnPlacer(placer, self._residency)
        self.makes_slices = isinstance(self._policy, Conspirator)  # so tenants of one shape fit differently
        self._spec, self._policy_name = spec, policy
        self._empty: Placer | None = None  # the same pool with nothing on it, made when it is first asked
        self._takes: dict[object, int | None] = {}  # by shape
        self.devices = len(views)
        self.types = [view.type for view in views]
        self.healthy = Counter(self.types)
        self._price_per_s = [spec.figures(view.type).price_per_h / 3600 for view in views]
        self._types = [name for name, _ in self.pool.names]
        self._declared = [spec.figures(type_).speed for type_ in self._types]
        self._model_of_row = self.pool.model.tolist()
        self._speed_of: dict[Whose, list[float]] = {}  # on each model
        self.learns = len(self._types) > 1  # what runs took on each type may matter
        self._held = [0] * len(views)
        self.booked = 0  # thousandths
        self.most_booked = 0  # for any time at all: what comes and goes at one instant does not count
        self.held = 0  # devices that hold anything
        self._rate = 0.0  # price of a second of them
        self._at = 0.0
        self.booked_s = 0.0  # thousandths x seconds
        self.held_s = 0.0
        self.cost = 0.0

    # --- booking ------------------------------------------------------------------------------
    def place(self, function: int, request: Request, now: float) -> Instance | Refusal:
        """A new instance with its place booked, or why not."""
        found = self.find(request, now)
        return found if isinstance(found, Refusal) else self.book(function, request, found, now)

    def find(self, request: Request, now: float) -> Placement | Refusal:
        """A place, not booked yet, or why there is none."""
        self.pool.now = now
        self._residency.refresh(request.weights, now)
        return self._placer.place(request)

    def host_mib(self, row: int) -> float:
        """The memory of the node of this row."""
        return float(self.pool.host_size[row]) / _MIB

    def opens(self, found: Placement) -> bool:
        """Whether it would be the first on a device."""
        return any(self._held[device] == 0 for device in found.devices)

    def place_on(self, device: int, function: int, request: Request, now: float) -> Instance | None:
        """A new instance on this very device, if it has room; never where the policy makes slices."""
        need = Need.of(request, self.pool)
        row, column = self.pool.where[device]
        if self.makes_slices or need.devices != 1 or not need.rows(self.pool, np.array([row]))[0]:
            return None
        if not need.columns(self.pool, np.array([row]))[0][column]:
            return None
        return self.book(function, request, placed(self.pool, row, (column,), int(need.share[row])), now)

    def book(self, function: int, request: Request, found: Placement, now: float) -> Instance:
        ends_at = now + request.duration_s if request.duration_s else 0.0
        self.useless.changes(found.row, now)
        taken = self.pool.take(request, found, ends_at)
        item = Instance(function, request, taken, self._speed(request, taken), ends_at)
        self._hold(item, now)
        self._residency.came(item)
        return item

    def without(self, request: Request, opened: Placement) -> Callable[[Instance], bool]:
        """Tells of instances whether their place alone would do, on a device of as good a type as the given place."""
        pool, need = self.pool, Need.of(request, self.pool)
        rank, rows = int(need.rank[opened.row]), need.rank.tolist()

        def would_do(item: Instance) -> bool:
            if not item.devices or rows[item.row] != rank or len(item.devices) > 1:
                return False
            place, held = pool.where[item.devices[0]], item.request
            return bool(
                pool.usable[place]
                and pool.left[place] + item.placement.share >= need.share[item.row]
                and pool.memory[place] + held.memory_bytes >= request.memory_bytes
                and pool.cpu[item.row] + held.cpu_milli >= request.cpu_milli
                and pool.host_memory[item.row] + held.host_memory >= request.host_memory
            )

        return would_do

    def takes(self, request: Request) -> int | None:
        """The share that the policy gives it of each device, rounded up as it does; None: an empty pool has no room."""
        shape = request.shape
        if shape not in self._takes:
            if self._empty is None:
                empty = Pool.of(device_views(self._spec), self._nodes)
                self._empty = Placer(empty, make_policy(self._policy_name, self._speeds), Random(0))  # noqa: S311  # a simulation
            found = self._empty.place(request)
            self._takes[shape] = found.share if isinstance(found, Placement) else None
        return self._takes[shape]

    def move(self, item: Instance, to: Placement, now: float, copy_s: float, pause_s: float) -> Instance:
        """An instance gets another place; the answer holds the old one, to be freed when the copy is made."""
        old = Instance(item.function, item.request, item.placement, item.speed, now + copy_s)
        self.pool.expect_instead(old.placement, item.ends_at, old.ends_at)
        item.ends_at += pause_s if item.ends_at else 0.0
        self.useless.changes(to.row, now)
        item.settle(self.pool.take(item.request, to, item.ends_at))
        self._hold(item, now)
        self._residency.came(item)
        return old

    def _hold(self, item: Instance, now: float) -> None:
        self._meter(now)
        self.booked += item.placement.share * len(item.devices)
        for device in item.devices:
            if self._held[device] == 0:
                self.held += 1
                self._rate += self._price_per_s[device]
            self._held[device] += 1

    def free(self, item: Instance, now: float) -> None:
        self._meter(now)
        self.useless.changes(item.row, now)
        self.booked += self._left(item)
        self.pool.give_back(item.request, item.placement, item.ends_at)
        self.booked -= self._left(item)
        item.dead = True
        self._residency.went(item, now)
        for device in item.devices:
            self._held[device] -= 1
            if self._held[device] == 0:
                self.held -= 1
                self._rate -= self._price_per_s[device]

    def _left(self, item: Instance) -> int:
        """What its devices have left; a slice is freed only by its last task, so the difference is what was freed."""
        return sum(int(self.pool.left[item.row, column]) for column in item.placement.columns)

    def set_health(self, device: int, healthy: bool, now: float = 0.0) -> None:
        self.useless.changes(self.pool.where[device][0], now)
        self.pool.set_health(device, healthy)
        self.healthy[self.types[device]] += 1 if healthy else -1
        if not healthy:
            self._residency.forget(self.pool.where[device])

    def ran(self, item: Instance, seconds: float) -> str:
        """A call has run for so long, loading not counted; on which type of device."""
        type_: str = self._types[self._model_of_row[item.row]]
        if item.devices:
            self._policy.ran(item.request.whose, type_, seconds)
        return type_

    def _speed(self, request: Request, placement: Placement) -> float:
        if not placement.devices:
            return 1.0
        speeds = self._speed_of.get(request.whose)
        if speeds is None:
            table = true_speeds(self._speeds.stated(request.function), self._spec) if self._speeds else {}
            declared = zip(self._types, self._declared, strict=True)
            speeds = [table.get(type_.lower(), speed) for type_, speed in declared]
            self._speed_of[request.whose] = speeds
        return float(speeds[self._model_of_row[placement.row]])

    def _meter(self, now: float) -> None:
        passed = now - self._at
        if self.booked > self.most_booked and passed > 0:
            self.most_booked = self.booked
        self.booked_s += self.booked * passed
        self.held_s += self.held * passed
        self.cost += self._rate * passed
        self._at = now

    def booked_until(self, now: float) -> float:
        """Thousandths x seconds from the start; nothing has changed since the last meter."""
        return self.booked_s + self.booked * (now - self._at)

    def close(self, now: float) -> None:
        """Brings the meters up to date."""
        self._meter(now)
