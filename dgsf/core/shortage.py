"""What is said while there is no device for somebody: the same sentences wherever one waits. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dgsf.core.placement.matching import rank_of

WAITING = "waiting for a free device; 'dgsf leases' shows who has them (Ctrl-C gives up)"
_RESTORE = "see 'dgsf devices', or 'dgsf devices restore NAME'"
Row = Mapping[str, Any]


def none_takes_work(wanted: str, states: Iterable[str]) -> str:
    """Devices of this sort are there, but none of them takes work; their states say why."""
    told = ", ".join(f"{count} {state}" for state, count in sorted(Counter(states).items()))
    return f"no {wanted} takes work now ({told}); {_RESTORE}"


def what_is_awaited(
    devices: Sequence[Row], leases: Sequence[Row], gpu: str | Sequence[str], memory_bytes: int, mine: str = ""
) -> str:
    """By the platform's listings: why there is no device now; empty if there is one, or function `mine` has one."""
    types = (gpu,) if isinstance(gpu, str) else tuple(gpu)
    fitting = {str(row["name"]): row for row in devices if rank_of(types, (row["type"], row["kind"])) is not None}
    held = [row for row in leases if row["device_name"] in fitting]
    if not fitting or (mine and any(row["function_name"] == mine for row in held)):
        return ""
    healthy = [row for row in fitting.values() if row["state"] == "healthy"]
    if not healthy:
        return none_takes_work(f"device ({' or '.join(types)})", (row["state"] for row in fitting.values()))
    return "" if any(_has_room(row, held, memory_bytes) for row in healthy) else WAITING


def _has_room(device: Row, held: Sequence[Row], memory_bytes: int) -> bool:
    there = [int(row["memory_bytes"]) for row in held if row["device_name"] == device["name"]]
    return len(there) < int(device["slots"]) and sum(there) + memory_bytes <= int(device["memory_bytes"])
