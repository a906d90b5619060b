"""From leases and sessions to the next live move: what is asked of placement, and what is ordered."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from dgsf.core.consolidation import HeldSlot, MoveOrder, next_move
from dgsf.core.placement import DeviceView
from dgsf.core.placement.consolidate import Budget, MoveRules
from dgsf.fabric.consolidating import held_slots
from dgsf.store.rows import LeaseRow
from dgsf.store.sessions import SessionSeat

GIB = 1024**3
HOUR = 3600.0
RULES = MoveRules()
NOW = datetime(2026, 1, 1, tzinfo=UTC)
A, B, C, D = (UUID(int=number) for number in range(1, 5))


def pool(held, slots=4, **changed):
    """Devices 1 to 3 with what these slots leave of them."""
    devices = []
    for number in (1, 2, 3):
        mine = [slot for slot in held if slot.device == number]
        device = DeviceView(
            number, "T4", "sim", True, slots, 16 * GIB, slots - len(mine),
            16 * GIB - sum(slot.memory_bytes for slot in mine), node=f"n{number}",
        )  # fmt: skip
        devices.append(replace(device, **changed.get(f"d{number}", {})))
    return devices


def slot(device, session=None, age_s=HOUR, size=GIB):
    return HeldSlot(device, size, age_s, session)


def test_of_two_half_empty_devices_one_becomes_free():
    held = [slot(1, A), slot(1, B), slot(2, C)]
    assert next_move(pool(held), held, RULES, 9) == MoveOrder(C, 1)


def test_the_first_of_several_moves_comes_first_and_none_if_not_all_may_be_made():
    held = [slot(1, A), slot(1, B), slot(2), slot(2, C)]
    order = next_move(pool(held, slots=8), held, RULES, 9)
    assert order in (MoveOrder(A, 2), MoveOrder(B, 2)), "device 2 holds something that stays"
    assert next_move(pool(held, slots=8), held, RULES, 1) is None


@pytest.mark.parametrize(
    ("held", "changed"),
    [
        ([slot(1, A), slot(2, B)], {"d1": {"healthy": False}}),
        ([slot(1, A), slot(2, B)], {"d1": {"type": "A100"}}),
        ([slot(1, A, size=9 * GIB), slot(2, B, size=9 * GIB)], {}),
        ([slot(1), slot(2)], {}),
        ([slot(1, A, age_s=30.0), slot(2, B, age_s=30.0)], {}),
        ([slot(1, A)], {}),
        ([slot(1, A), slot(1, B), slot(1, C), slot(2, D), slot(2), slot(2)], {"d3": {"healthy": False}}),
    ],
    ids=["not healthy", "another type", "memory", "workers stay", "too young", "alone", "too little room left"],
)
def test_nothing_is_ordered(held, changed):
    assert next_move(pool(held, **changed), held, RULES, 9) is None


def test_a_device_with_something_young_is_not_emptied_in_vain():
    held = [slot(1, A), slot(1, age_s=1.0), slot(2, B), slot(2, C, age_s=1.0)]
    assert next_move(pool(held), held, RULES, 9) is None


def test_a_rate_below_one_per_hour_is_saved_up_until_it_is_one():
    budget = Budget(0.25)
    assert [budget.left(0.0), budget.left(2 * HOUR), budget.left(3 * HOUR), budget.left(99 * HOUR)] == [0, 0, 1, 1]


def lease(device, version=None, size=GIB, tenant=1, held_s=5.0):
    return LeaseRow(
        device_id=device, slot=0, epoch=1, device_incarnation=1, device_name="", holder="p", holder_incarnation=1,
        version_id=version, function_name=None, tenant_id=tenant, tenant_name="t", memory_bytes=size, granted_at=NOW,
        expires_at=NOW, expired=False, held_s=held_s,
    )  # fmt: skip


def seat(session, device, version=None, size=GIB, tenant=1):
    return SessionSeat(session, tenant, version, device, "attached", size, 77.0, False, None)


def test_a_lease_belongs_to_the_session_that_is_there_and_everything_else_stays():
    leases = [lease(1), lease(1), lease(1, version=7), lease(2, version=7), lease(2, tenant=2), lease(2, size=2 * GIB)]
    found = held_slots(leases, [seat(A, 1), seat(B, 2, version=7), seat(C, 3)])
    assert found == [
        slot(1, A, 77.0), slot(1, None, 5.0), slot(1, None, 5.0), slot(2, B, 77.0), slot(2, None, 5.0),
        slot(2, None, 5.0, 2 * GIB),
    ]  # fmt: skip
