"""What a fixed idle time would keep resident, followed beside what really happens: the budget of learned keep-warm.

Instances and devices here are imagined, but of each type there are no more than the real pool has room for.  A function
that needs so many instances has at least that many; each goes when it was not used for the idle time; a new one is put
on the fullest device with room, else on a new device.  Where there is none, the least recently used idle instance makes
way, as it would under the fixed rule, and what finds no room even so is not held.  A device is resident while it holds
any.  Time comes in as seconds.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

DEVICE = 1_000_000  # parts of one device


@dataclass(frozen=True, slots=True)
class Slot:
    """What an instance takes: so many parts of a device of this type."""

    type: str = ""
    part: int = DEVICE

    def __post_init__(self) -> None:
        if not 0 < self.part <= DEVICE:
            raise ValueError(f"{self}: from 1 to {DEVICE} parts")  # a device is in use while some of it is taken

    @classmethod
    def one_of(cls, slots: int, type_: str = "") -> Slot:
        return cls(type_, DEVICE // max(1, slots))


@dataclass(frozen=True, slots=True)
class Room:
    """The most that there can be on one type of device: what is held now, and what is free beside it."""

    devices: int
    parts: int  # of these devices together, without what others have of them


@dataclass(frozen=True, slots=True)
class Use:
    """So many instances of a function were in use at once; `real` are those that there are, by what they take."""

    busy: int
    real: Mapping[Slot, int]


def room_of(devices: Iterable[tuple[str, int, int, int]]) -> dict[str, Room]:
    """By type, from the type, slots, free slots and own instances of every device that takes work."""
    count: Counter[str] = Counter()
    parts: Counter[str] = Counter()
    for type_, slots, free, own in devices:
        count[type_] += free + own > 0
        parts[type_] += (free + own) * Slot.one_of(slots).part
    return {type_: Room(count[type_], parts[type_]) for type_ in count}


class FixedShadow:
    """Resident device-seconds of the fixed rule so far."""

    def __init__(self, idle_s: float) -> None:
        self.resident_s = 0.0
        self._idle_s = idle_s
        self._now: float | None = None
        self._instances: dict[str, list[_Imagined]] = {}  # by function, latest used first
        self._devices: dict[str, _Devices] = defaultdict(_Devices)  # by type

    def look(self, used: Mapping[str, Use], now: float, room: Mapping[str, Room]) -> None:
        """What was used since the last look, and the room that there is now; of a type not in it there is no end."""
        if self._now is not None:
            self.resident_s += sum(len(each.free) for each in self._devices.values()) * (now - self._now)
        self._now = now
        for function, use in used.items():
            for item in self._instances.get(function, ())[: use.busy]:
                item.used = now
        self._expire(now)
        idle = _Idle(self._instances, now)
        for type_, devices in self._devices.items():
            devices.room = room.get(type_)
            while devices.too_many and (gone := idle.pop(type_)) is not None:
                self._remove(gone)
        for function, use in used.items():
            self._add_missing(function, use, idle, room)

    def next_end(self, busy: Mapping[str, int] | None = None) -> float:
        """When the next of its instances goes, if no call comes and so many of each function stay in use."""
        kept = busy or {}
        idle = (mine[-1].used for name, mine in self._instances.items() if len(mine) > kept.get(name, 0))
        return min(idle, default=math.inf) + self._idle_s

    def _add_missing(self, function: str, use: Use, idle: _Idle, room: Mapping[str, Room]) -> None:
        """Each is of the kind of which there are most more in reality."""
        missing = use.busy - len(self._instances.get(function, ()))
        if missing <= 0 or not use.real:
            return
        lacking = Counter(use.real)
        lacking.subtract(item.slot for item in self._instances.get(function, ()))
        for _ in range(missing):
            slot = max(use.real, key=lacking.__getitem__)
            lacking[slot] -= 1
            devices = self._devices[slot.type]
            devices.room = room.get(slot.type)
            while (device := devices.place(slot.part)) is None and (gone := idle.pop(slot.type)) is not None:
                self._remove(gone)
            if device is not None:
                self._instances.setdefault(function, []).append(_Imagined(idle.now, device, slot))

    def _remove(self, item: _Imagined) -> None:
        self._devices[item.slot.type].give_back(item.device, item.slot.part)

    def _expire(self, now: float) -> None:
        for function in list(self._instances):
            mine = self._instances[function]
            while mine and now - mine[-1].used > self._idle_s:
                self._remove(mine.pop())
            if not mine:
                del self._instances[function]


@dataclass(slots=True, eq=False)
class _Imagined:
    """One instance."""

    used: float  # last
    device: int
    slot: Slot


@dataclass(slots=True)
class _Devices:
    """Those of one type that hold any."""

    free: dict[int, int] = field(default_factory=dict)  # parts left of each
    room: Room | None = None
    _held: int = 0  # parts
    _made: int = 0

    @property
    def too_many(self) -> bool:
        return self.room is not None and (self._held > self.room.parts or len(self.free) > self.room.devices)

    def place(self, part: int) -> int | None:
        """The fullest device with room for so much, or a new one; None: there is none."""
        if self.room is not None and self._held + part > self.room.parts:
            return None
        fitting = [(free, device) for device, free in self.free.items() if free >= part]
        if not fitting and self.room is not None and len(self.free) >= self.room.devices:
            return None
        self._made += not fitting
        device = min(fitting)[1] if fitting else self._made
        self.free[device] = self.free.get(device, DEVICE) - part
        self._held += part
        return device

    def give_back(self, device: int, part: int) -> None:
        self._held -= part
        self.free[device] += part
        if self.free[device] == DEVICE:
            del self.free[device]


class _Idle:
    """The instances that were not used just now, by type, least recently used first."""

    def __init__(self, instances: dict[str, list[_Imagined]], now: float) -> None:
        self.now = now
        self._instances = instances
        self._order: dict[str, list[tuple[float, int, str, _Imagined]]] | None = None

    def pop(self, type_: str) -> _Imagined | None:
        """Takes the next one of this type out of its function's; None: all are in use."""
        if self._order is None:  # made when one is asked for: mostly none is
            self._order = self._sorted()
        order = self._order.get(type_)
        if not order:
            return None
        *_, function, item = heapq.heappop(order)
        mine = self._instances[function]
        mine.remove(item)
        if not mine:
            del self._instances[function]
        return item

    def _sorted(self) -> dict[str, list[tuple[float, int, str, _Imagined]]]:
        """Of those used at the same time, a function's last ones first."""
        order: dict[str, list[tuple[float, int, str, _Imagined]]] = defaultdict(list)
        for function, mine in self._instances.items():
            for place, item in enumerate(mine):
                if item.used < self.now:
                    order[item.slot.type].append((item.used, -place, function, item))
        for each in order.values():
            heapq.heapify(each)
        return order
