"""Which devices a request accepts, and in plain words why none will ever do."""

from __future__ import annotations

from collections.abc import Sequence

from dgsf.core.devices import HOST
from dgsf.core.placement.model import ANY, DeviceView, Request
from dgsf.core.sizes import describe_bytes


def rank_of(types: Sequence[str], names: Sequence[str]) -> int | None:
    """The position of the first acceptable type that is one of a device's names; a host is only had by its name."""
    known = {name.lower() for name in names}
    if HOST in known:
        return 0 if tuple(types) == (HOST,) else None
    for position, wanted in enumerate(types):
        equals = wanted.lower().split("|")
        if ANY in equals or known.intersection(equals):
            return position
    return None


def preference(request: Request, device: DeviceView) -> int | None:
    """The position of the first acceptable type that this device is, or None."""
    return rank_of(request.types, (device.type, device.kind))


def could_ever_fit(request: Request, device: DeviceView) -> bool:
    """Whether an empty device of this kind would do."""
    enough = device.memory_bytes >= request.memory_bytes and device.node_cpu_milli >= request.cpu_milli
    return preference(request, device) is not None and enough and device.slots > 0


def has_slot(request: Request, device: DeviceView) -> bool:
    """Whether the device has room for it now, whatever its node's processors are doing."""
    free = device.healthy and device.free_slots > 0 and device.free_memory >= request.memory_bytes
    return free and could_ever_fit(request, device)


def why_not(request: Request, pool: Sequence[DeviceView]) -> str | None:
    """Why no device of this pool can ever hold the request; None if one can."""
    if any(could_ever_fit(request, device) for device in pool):
        return None
    acceptable = [device for device in pool if preference(request, device) is not None]
    if not acceptable:
        there = ", ".join(sorted({device.type for device in pool if device.kind != HOST})) or "none"
        return f"no device of type {' or '.join(request.types)}; the pool has: {there}"
    most = max(device.node_cpu_milli for device in acceptable)
    if most < request.cpu_milli:
        what = "function host" if request.types == (HOST,) else "matching device"
        asked = f"asks for {request.cpu_milli / 1000:g} processors"
        return f"{asked}; the largest node with a {what} has {most / 1000:g}: lower cpu="
    largest = max(device.memory_bytes for device in acceptable)
    asked = describe_bytes(request.memory_bytes)
    return f"asks for {asked} of memory; the largest matching device has {describe_bytes(largest)}"
