"""Where a function's next worker goes: a request and a view of the pool in, a device or a reason out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dgsf.core.devices import HOST

ANY = "any"


@dataclass(frozen=True, slots=True)
class DeviceView:
    """What placement knows of a device."""

    id: int
    type: str
    kind: str
    healthy: bool
    slots: int
    memory_bytes: int
    free_slots: int
    free_memory: int
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class Request:
    """What a worker needs: acceptable types in order of preference, and memory."""

    types: tuple[str, ...]
    memory_bytes: int


def preference(request: Request, device: DeviceView) -> int | None:
    """The position of the first acceptable type that this device is, or None; a host is only had by its name."""
    if device.kind == HOST:
        return 0 if request.types == (HOST,) else None
    names = {device.type.lower(), device.kind.lower()}
    for position, wanted in enumerate(request.types):
        if wanted.lower() == ANY or wanted.lower() in names:
            return position
    return None


def could_ever_fit(request: Request, device: DeviceView) -> bool:
    """Whether an empty device of this kind would do."""
    return preference(request, device) is not None and device.memory_bytes >= request.memory_bytes and device.slots > 0


def choose(request: Request, pool: Sequence[DeviceView]) -> DeviceView | None:
    """The best device that has room now: preferred type first, then the one that is left fullest."""
    fitting = [
        (position, device.free_slots, device.free_memory, device.id, device)
        for device in pool
        if device.healthy
        and device.free_slots > 0
        and device.free_memory >= request.memory_bytes
        and (position := preference(request, device)) is not None
    ]
    return min(fitting)[-1] if fitting else None


def why_not(request: Request, pool: Sequence[DeviceView]) -> str | None:
    """Why no device of this pool can ever hold the request; None if one can."""
    if any(could_ever_fit(request, device) for device in pool):
        return None
    acceptable = [device for device in pool if preference(request, device) is not None]
    if not acceptable:
        there = ", ".join(sorted({device.type for device in pool if device.kind != HOST})) or "none"
        return f"no device of type {' or '.join(request.types)}; the pool has: {there}"
    largest = max(device.memory_bytes for device in acceptable)
    return f"asks for {request.memory_bytes} bytes of memory; the largest matching device has {largest}"
