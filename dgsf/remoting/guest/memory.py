"""What torch is told of the remote device's memory: the session's lease and what is live of it.

Each answer but the lease is a round trip.  A session has no cache of freed memory, so what is reserved is what is
allocated.  A tensor that is larger than the whole lease is refused here, at its line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dgsf.core.sizes import describe_bytes
from dgsf.remoting.guest.bound import bound
from dgsf.remoting.guest.failures import DeviceOutOfMemory
from dgsf.remoting.guest.layout import reach_bytes

_WORTH_A_LOOK = 1 << 20  # bytes; a function's session is not opened for less


def allocated() -> int:
    return bound.need().memory()[0]


def peak() -> int:
    return bound.need().memory()[1]


def lease() -> int:
    return bound.need().lease()


def forget_peak() -> None:
    bound.need().memory(forget_peak=True)


def free_and_total() -> tuple[int, int]:
    live, _, total = bound.need().memory()
    return max(0, total - live), total


def stats() -> dict[str, Any]:
    """The few of torch's many numbers that mean something here."""
    live, most, _ = bound.need().memory()
    names = ("allocated_bytes.all", "reserved_bytes.all", "active_bytes.all")
    return {f"{name}.{what}": value for name in names for what, value in (("current", live), ("peak", most))}


def nested_stats() -> dict[str, Any]:
    """The same, a level for each part of their names."""
    nested: dict[str, Any] = {}
    for name, value in stats().items():
        *path, last = name.split(".")
        level = nested
        for part in path:
            level = level.setdefault(part, {})
        level[last] = value
    return nested


def summary() -> str:
    live, most, total = bound.need().memory()
    rows = (("in use", live), ("most so far", most), ("leased", total))
    return "\n".join([f"memory of remote device {bound.name}", *(f"  {n:<12} {describe_bytes(v)}" for n, v in rows)])


def check_fits(dtype: torch.dtype, size: Sequence[int], stride: Sequence[int]) -> None:
    """Whether the device could hold such a new tensor if it held nothing else; DeviceOutOfMemory."""
    asked = reach_bytes(dtype, size, stride)
    if asked < _WORTH_A_LOOK or asked <= (leased := lease()):
        return
    raise DeviceOutOfMemory(
        f"a tensor of {describe_bytes(asked)} is larger than the whole device memory of this session, "
        f"{describe_bytes(leased)}; ask for more memory (gpu_memory= of the function, memory= of dgsf.attach)",
        asked=asked,
        leased=leased,
    )


ANSWERS: dict[str, Any] = {
    "memory_allocated": allocated,
    "max_memory_allocated": peak,
    "memory_reserved": allocated,
    "max_memory_reserved": peak,
    "memory_cached": allocated,
    "max_memory_cached": peak,
    "mem_get_info": free_and_total,
    "memory_stats": stats,
    "memory_stats_as_nested_dict": nested_stats,
    "memory_summary": summary,
    "reset_peak_memory_stats": forget_peak,
    "reset_max_memory_allocated": forget_peak,
    "reset_max_memory_cached": forget_peak,
    "reset_accumulated_memory_stats": lambda: None,
}
