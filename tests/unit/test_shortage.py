"""What somebody hears who waits for a device, by the platform's own listings."""

from __future__ import annotations

from typing import Any

import pytest

from dgsf.core.shortage import WAITING, what_is_awaited

GIB = 1024**3


def device(name: str, **changes: Any) -> dict[str, Any]:
    said = {"name": name, "kind": "cpu", "type": "cpu", "state": "healthy", "slots": 1, "memory_bytes": 2 * GIB}
    return {**said, **changes}


def lease(device_name: str, function_name: str | None = None, memory_bytes: int = GIB) -> dict[str, Any]:
    return {"device_name": device_name, "function_name": function_name, "memory_bytes": memory_bytes}


@pytest.mark.parametrize(
    ("devices", "leases", "words"),
    [
        ([device("cpu0")], [], ""),
        ([device("cpu0", state="draining")], [], "no device (any) takes work now (1 draining); see 'dgsf devices'"),
        ([device("cpu0")], [lease("cpu0", "other")], WAITING),
        ([device("cpu0")], [lease("cpu0", "mine")], ""),
        ([device("cpu0"), device("cpu1")], [lease("cpu0", "other")], ""),
        ([device("cpu0", slots=4)], [lease("cpu0", "other", 3 * GIB // 2)], WAITING),
    ],
)
def test_a_pool_without_room_is_told_and_one_with_room_is_not(
    devices: list[dict[str, Any]], leases: list[dict[str, Any]], words: str
) -> None:
    told = what_is_awaited(devices, leases, "any", GIB, "mine")
    assert told.startswith(words) and bool(told) is bool(words)


def test_devices_of_another_type_do_not_count() -> None:
    pool = [device("cpu0"), device("sim0", type="A100", kind="sim", state="lost")]
    assert what_is_awaited(pool, [], ["A100", "H100"], GIB).startswith(
        "no device (A100 or H100) takes work now (1 lost)"
    )
