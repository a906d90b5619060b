"""What torch is told of the remote device's memory: the session's lease and what is live of it.

Each answer is a round trip.  A session has no cache of freed memory, so what is reserved is what is allocated.
"""

from __future__ import annotations

from typing import Any

from dgsf.core.sizes import describe_bytes
from dgsf.remoting.guest.bound import bound


def allocated() -> int:
    return bound.need().memory()[0]


def peak() -> int:
    return bound.need().memory()[1]


def lease() -> int:
    return bound.need().memory()[2]


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


def summary() -> str:
    live, most, total = bound.need().memory()
    rows = (("in use", live), ("most so far", most), ("leased", total))
    return "\n".join([f"memory of remote device {bound.name}", *(f"  {n:<12} {describe_bytes(v)}" for n, v in rows)])


ANSWERS: dict[str, Any] = {
    "memory_allocated": allocated,
    "max_memory_allocated": peak,
    "memory_reserved": allocated,
    "max_memory_reserved": peak,
    "memory_cached": allocated,
    "max_memory_cached": peak,
    "mem_get_info": free_and_total,
    "memory_stats": stats,
    "memory_summary": summary,
    "reset_peak_memory_stats": forget_peak,
    "reset_max_memory_allocated": forget_peak,
    "reset_max_memory_cached": forget_peak,
    "reset_accumulated_memory_stats": lambda: None,
}
