"""The pool as arrays: a row per node (and device type on it), a column per device, whole numbers throughout.

It keeps what is left of every share, memory and processor, which devices may be used, who owns slices, and when the
devices in use are expected to be free.  Each row counts its changes, so score caches can follow at little cost.  It
never chooses: it is told what is taken and given back, and refuses to go below zero.
"""

from __future__ import annotations

import struct
from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from dgsf.core.placement.matching import rank_of
from dgsf.core.placement.model import NO_SLICE, PLENTY, WHOLE, DeviceView, NodeView, Placement, Request, Slice

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Place = tuple[int, int]  # row, column
NO_TYPE = ""  # of a node without devices
RowKey = tuple[str, str, str, int]  # node, type, kind, slots


@dataclass(slots=True)
class OwnedSlice:
    """A slice in use: whose it is, how large, how full, and until when."""

    number: int
    tenant: str
    share: int
    used: int
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class Part:
    """Some of a pool's devices."""

    devices: Bools  # (rows, columns)
    some: Ints  # rows of which it has some and not all
    without: Bools  # (rows) those that have devices, and it has none of them


@dataclass(slots=True)
class Pool:
    """What is left of everything, now."""

    ids: Ints  # (rows, columns); -1: no such device
    left: Ints  # thousandths not given away
    room: Ints  # the same, 0 where the device may not be used
    usable: Bools
    memory: Ints  # bytes free on each device
    cpu: Ints  # (rows)
    host_memory: Ints
    host_size: Ints  # (rows) memory that the node has; plenty if it does not say
    slot: Ints  # thousandths that one slot of this row's devices is
    model: Ints  # index into `names`
    names: list[tuple[str, str]]  # (type, kind)
    nodes: list[str]
    speed: Floats
    price: Floats
    changes: Ints  # (rows) how often each row has changed
    tasks: Ints  # tasks on each device
    opened: Ints  # the order in which the devices in use came into use
    classes: Ints  # (rows, columns + 1) tasks that hold a share (0), one whole device (1), two (2), ...
    until: Floats  # when each device is expected to be free
    siblings: list[list[int]]  # rows of the same node
    resident: dict[str, set[Place]]
    where: dict[int, Place]
    sized: Bools  # devices that can hold anything at all when they are empty
    memory_size: Ints  # bytes that each device has
    cpu_size: Ints  # (rows) processors that the node has; plenty if it does not say
    members: Ints  # (rows) how many devices
    slices: dict[Place, list[OwnedSlice]] = field(default_factory=dict)
    ends: dict[Place, list[float]] = field(default_factory=dict)
    now: float = 0.0
    hidden: Bools | None = None  # (rows) none of their devices will do for the present question
    _next_slice: int = 0
    _expected: list[int] | None = None  # devices of the last `expect_all`,
    _places: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # and where they are in a flat array
    _openings: int = 0

    @staticmethod
    def of(devices: Iterable[DeviceView], nodes: Sequence[NodeView] = ()) -> Pool:
        """A pool of these devices; rows are in the order in which devices name nodes, then nodes without devices."""
        return _build(list(devices), nodes)

    def places(self, devices: Iterable[int]) -> Ints:
        """Where these are in a flat array."""
        found = np.array([self.where[device] for device in devices], dtype=np.int64).reshape(-1, 2)
        flat: Ints = found[:, 0] * self.ids.shape[1] + found[:, 1]
        return flat

    def part(self, places: Ints) -> Part:
        """The devices at these flat places."""
        devices = np.zeros(self.ids.shape, dtype=np.bool_)
        devices.ravel()[places] = True
        count = np.bincount(places // max(1, self.ids.shape[1]), minlength=len(self.nodes))
        some = np.flatnonzero((count > 0) & (count < self.members))
        return Part(devices, some, (count == 0) & (self.members > 0))

    @contextmanager
    def only(self, part: Part) -> Iterator[None]:
        """For one question: all devices but these are as if out of order.

        Rows of which none is left are hidden, and what is known of them stays good; others change, and change back.
        """
        room, usable, sized = self.room, self.usable, self.sized
        self.room, self.usable, self.sized = room * part.devices, usable & part.devices, sized & part.devices
        self.hidden = part.without
        self.changes[part.some] += 1
        try:
            yield
        finally:
            self.room, self.usable, self.sized, self.hidden = room, usable, sized, None
            self.changes[part.some] += 1

    def rank(self, types: Sequence[str]) -> Ints:
        """For each row the position of its type among these, or -1."""
        by_model = [rank_of(types, names) for names in self.names]
        return np.array([-1 if rank is None else rank for rank in by_model], dtype=np.int64)[self.model]

    def take(self, request: Request, placement: Placement, ends_at: float = 0.0) -> Placement:
        """Book a placement; returns it with the number of its slice, if it made one."""
        row, columns = placement.row, list(placement.columns)
        if self.cpu[row] < request.cpu_milli or self.host_memory[row] < request.host_memory:
            raise ValueError(f"node {placement.node} has too little CPU or memory left")
        if any(self.room[row, column] < placement.share for column in columns):
            raise ValueError(f"a device of node {placement.node} has too little left")
        if any(self.memory[row, column] < request.memory_bytes for column in columns):
            raise ValueError(f"a device of node {placement.node} has too little memory left")
        for column in columns:
            placement = self._own(request, placement, (row, column), ends_at)
        self._shift(request, placement, -1)
        if ends_at and columns:
            self._expect(row, columns, ends_at)
        return placement

    def give_back(self, request: Request, placement: Placement, ends_at: float = 0.0) -> None:
        """Undo a placement as `take` returned it."""
        share = placement.share
        for column in placement.columns:
            place = (placement.row, column)
            if placement.owned_slice != NO_SLICE:
                share = self._disown(request, placement, place)
            if ends_at:
                self.ends[place].remove(ends_at)
                self.until[place] = max(self.ends[place], default=0.0)
        self._shift(request, placement, 1, share)

    def expect_instead(self, placement: Placement, before: float, ends_at: float) -> None:
        """What was expected to end then ends at another time."""
        for column in placement.columns:
            if before:
                self.ends[placement.row, column].remove(before)
        self._expect(placement.row, placement.columns, ends_at)

    def expect_all(self, until: Mapping[int, float]) -> None:
        """These devices are in use until then, all others are not in use."""
        self.until.fill(0.0)
        devices = list(until)
        if devices != self._expected:  # most often the same as before: those in use, of which there are many
            until = {device: at for device, at in until.items() if device in self.where}
            self._places = self.places(until)
            self._expected = devices if len(devices) == len(until) else None
        packed = struct.pack(f"{len(until)}d", *until.values())  # three times as fast as numpy reads a dict
        self.until.ravel()[self._places] = np.frombuffer(packed, dtype=np.float64)

    def set_health(self, device: int, healthy: bool) -> None:
        """An unhealthy device keeps what it holds and gets nothing new."""
        row, column = self.where[device]
        self.room[row, column] = self.left[row, column] if healthy else 0
        self.usable[row, column] = healthy
        self.changes[row] += 1

    def renew(self, changes: Iterable[tuple[DeviceView, DeviceView]]) -> None:
        """Devices that looked like the first look like the second: what is left, their health, or what is on them."""
        for before, now in changes:
            row, column = place = self.where[now.id]
            for name in before.weights - now.weights:
                self.resident[name].discard(place)
            self.slices.pop(place, None)
            _fill_in(self, row, column, now)
            if replace(before, busy_until_s=now.busy_until_s) != now:  # no score that is kept depends on that time
                self.changes[row] += 1

    def renew_node(self, rows: Sequence[int], node: NodeView) -> None:
        """A node has this much left of its processors and memory."""
        self.cpu[rows] = np.minimum(self.cpu_size[rows], node.free_cpu_milli)
        self.host_memory[rows] = node.free_memory
        self.changes[rows] += 1

    def slices_of(self, device: int) -> tuple[Slice, ...]:
        return tuple(Slice(s.tenant, s.share, s.used) for s in self.slices.get(self.where[device], ()))

    def _shift(self, request: Request, placement: Placement, sign: int, share: int | None = None) -> None:
        row, columns = placement.row, list(placement.columns)
        moved = sign * (placement.share if share is None else share)
        for column in columns:
            self.left[row, column] += moved
            if self.usable[row, column]:
                self.room[row, column] = self.left[row, column]
            self.memory[row, column] += sign * request.memory_bytes
            if self.tasks[row, column] == 0:
                self._openings += 1
                self.opened[row, column] = self._openings
            self.tasks[row, column] -= sign
        if columns:
            self.classes[row, len(columns) if request.whole else 0] -= sign
        for each in self.siblings[row] if request.cpu_milli or request.host_memory else (row,):
            self.cpu[each] += sign * request.cpu_milli
            self.host_memory[each] += sign * request.host_memory
            self.changes[each] += 1

    def _expect(self, row: int, columns: Sequence[int], ends_at: float) -> None:
        for column in columns:
            ends = self.ends.setdefault((row, column), [])
            insort(ends, ends_at)
            self.until[row, column] = ends[-1]

    def _own(self, request: Request, placement: Placement, place: Place, ends_at: float) -> Placement:
        if placement.owned_slice == NO_SLICE:
            return placement
        owned = self.slices.setdefault(place, [])
        mine = next((s for s in owned if s.number == placement.owned_slice), None)
        if mine is None:
            self._next_slice += 1
            mine = OwnedSlice(self._next_slice, request.tenant, placement.share, 0)
            owned.append(mine)
        elif mine.tenant != request.tenant or mine.used + (request.share or 0) > mine.share:
            raise ValueError(f"slice {mine.number} belongs to another tenant or is full")
        mine.used += request.share or 0
        mine.until = max(mine.until, ends_at)
        return replace(placement, owned_slice=mine.number)

    def _disown(self, request: Request, placement: Placement, place: Place) -> int:
        """What becomes free when a task leaves its slice: nothing, or the slice when it was the last."""
        mine = next(s for s in self.slices[place] if s.number == placement.owned_slice)
        mine.used -= request.share or 0
        if mine.used:
            return 0
        self.slices[place].remove(mine)
        return mine.share


def _build(devices: list[DeviceView], nodes: Sequence[NodeView]) -> Pool:
    rows: dict[RowKey, list[DeviceView]] = {}
    for device in devices:
        rows.setdefault((device.node or f"device-{device.id}", device.type, device.kind, device.slots), []).append(
            device
        )
    named = {key[0] for key in rows}
    for node in nodes:
        if node.name not in named:
            rows[node.name, NO_TYPE, NO_TYPE, 1] = []
    return _fill(rows, {node.name: node for node in nodes})


def _fill(rows: dict[RowKey, list[DeviceView]], nodes: dict[str, NodeView]) -> Pool:
    wide = max((len(devices) for devices in rows.values()), default=0)
    shape = (len(rows), wide)
    names: dict[tuple[str, str], int] = {}
    by_node: dict[str, list[int]] = {}
    for row, key in enumerate(rows):
        names.setdefault((key[1], key[2]), len(names))
        by_node.setdefault(key[0], []).append(row)
    plain = [nodes.get(key[0], NodeView(key[0])) for key in rows]
    cpu_size = np.array([_cpu_size(*each) for each in zip(rows.values(), plain, strict=True)], dtype=np.int64)
    pool = Pool(
        ids=np.full(shape, -1, dtype=np.int64),
        left=np.zeros(shape, dtype=np.int64),
        room=np.zeros(shape, dtype=np.int64),
        usable=np.zeros(shape, dtype=np.bool_),
        memory=np.zeros(shape, dtype=np.int64),
        cpu=np.minimum(cpu_size, np.array([node.free_cpu_milli for node in plain], dtype=np.int64)),
        host_memory=np.array([node.free_memory for node in plain], dtype=np.int64),
        host_size=np.array([node.memory_bytes for node in plain], dtype=np.int64),
        slot=np.array([WHOLE // max(1, key[3]) for key in rows], dtype=np.int64),
        model=np.array([names[key[1], key[2]] for key in rows], dtype=np.int64),
        names=list(names),
        nodes=[key[0] for key in rows],
        speed=np.array([devices[0].speed if devices else 0.0 for devices in rows.values()], dtype=np.float64),
        price=np.array([devices[0].price if devices else 1.0 for devices in rows.values()], dtype=np.float64),
        changes=np.zeros(len(rows), dtype=np.int64),
        tasks=np.zeros(shape, dtype=np.int64),
        opened=np.zeros(shape, dtype=np.int64),
        classes=np.zeros((len(rows), wide + 1), dtype=np.int64),
        until=np.zeros(shape, dtype=np.float64),
        siblings=[by_node[key[0]] for key in rows],
        resident={},
        where={},
        sized=np.zeros(shape, dtype=np.bool_),
        memory_size=np.zeros(shape, dtype=np.int64),
        cpu_size=cpu_size,
        members=np.array([len(devices) for devices in rows.values()], dtype=np.int64),
    )
    for row, members in enumerate(rows.values()):
        for column, device in enumerate(members):
            _enter(pool, row, column, device)
    return pool


def _enter(pool: Pool, row: int, column: int, device: DeviceView) -> None:
    pool.ids[row, column] = device.id
    pool.where[device.id] = (row, column)
    pool.sized[row, column] = device.slots > 0 or bool(device.free_share)
    pool.memory_size[row, column] = min(PLENTY, device.memory_bytes)
    _fill_in(pool, row, column, device)


def _fill_in(pool: Pool, row: int, column: int, device: DeviceView) -> None:
    """What changes during the life of a device."""
    left = _share_left(device)
    pool.left[row, column] = left
    pool.room[row, column] = left if device.healthy else 0
    pool.usable[row, column] = device.healthy
    pool.memory[row, column] = min(PLENTY, device.free_memory)
    taken = device.slots - device.free_slots
    pool.classes[row, 0] += taken - pool.tasks[row, column]  # a slot is a share
    pool.tasks[row, column] = taken
    pool.until[row, column] = device.busy_until_s
    for name in device.weights:
        pool.resident.setdefault(name, set()).add((row, column))
    for part in device.slices:
        pool._next_slice += 1
        pool.slices.setdefault((row, column), []).append(
            OwnedSlice(pool._next_slice, part.tenant, part.share, part.used)
        )


def _cpu_size(devices: Sequence[DeviceView], node: NodeView) -> int:
    return min(PLENTY, node.cpu_milli, max((device.node_cpu_milli for device in devices), default=PLENTY))


def _share_left(device: DeviceView) -> int:
    if device.free_share is not None:
        return device.free_share
    if device.free_slots >= device.slots:
        return WHOLE if device.slots else 0
    return max(0, device.free_slots) * (WHOLE // device.slots)
