"""What a fixed idle time would keep: what was in use, packed, and no more than the pool has room for."""

import pytest

from dgsf.core.shadow import DEVICE, FixedShadow, Room, Slot, Use, room_of

HALF = Slot.one_of(2)


def looked(shadow, busy, now, room=None, slot=HALF):
    """So many of each function are in use."""
    limits = {} if room is None else {slot.type: Room(room, room * DEVICE)}
    shadow.look({name: Use(count, {slot: count}) for name, count in busy.items()}, now, limits)


def test_instances_are_packed_and_go_after_the_idle_time():
    shadow = FixedShadow(idle_s=10)
    looked(shadow, {"f": 2, "g": 1}, 0.0)  # two devices
    looked(shadow, {"g": 1}, 10.0)
    looked(shadow, {}, 10.5)  # both f are gone, and with them a device
    assert shadow.resident_s == 21
    looked(shadow, {}, 20.5)
    looked(shadow, {}, 100.0)
    assert shadow.resident_s == 31


def test_in_a_full_pool_the_least_recently_used_idle_instance_makes_way():
    shadow = FixedShadow(idle_s=60)
    looked(shadow, {"f": 1}, 0.0, room=1)
    looked(shadow, {"g": 1}, 1.0, room=1)
    looked(shadow, {"h": 1}, 2.0, room=1)  # f goes
    assert shadow.next_end() == 61, "g is the next"
    looked(shadow, {"g": 1}, 3.0, room=1)
    looked(shadow, {"f": 1}, 4.0, room=1)  # h goes, though it came later than g
    assert shadow.next_end() == 63
    assert shadow.resident_s == 4, "never more than the one device"


def test_what_finds_no_room_beside_those_in_use_is_not_held():
    shadow = FixedShadow(idle_s=60)
    looked(shadow, {"f": 2, "g": 2}, 0.0, room=1)
    looked(shadow, {"f": 2, "g": 2}, 5.0, room=1)
    looked(shadow, {}, 100.0, room=1)
    looked(shadow, {}, 200.0, room=1)
    assert shadow.resident_s == 100


def test_an_instance_takes_its_part_of_a_device():
    shadow = FixedShadow(idle_s=60)
    small, large = Slot("", DEVICE // 10), Slot("", DEVICE // 2)
    limits = {"": Room(2, 2 * DEVICE)}
    shadow.look({"small": Use(10, {small: 10}), "large": Use(2, {large: 2})}, 0.0, limits)
    shadow.look({}, 1.0, limits)
    assert shadow.resident_s == 2
    shadow.look({"whole": Use(1, {Slot(""): 1})}, 2.0, limits)  # a device is emptied for it
    shadow.look({"large": Use(2, {large: 2})}, 3.0, limits)
    shadow.look({}, 4.0, limits)
    assert shadow.resident_s == 8


def test_room_that_others_have_taken_is_not_there_and_what_is_idle_goes():
    shadow = FixedShadow(idle_s=60)
    looked(shadow, {"f": 4}, 0.0)
    looked(shadow, {"f": 1}, 1.0, room=1)  # the others are idle
    looked(shadow, {"f": 1}, 2.0, room=1)
    assert shadow.resident_s == 3
    shadow.look({"g": Use(1, {HALF: 1})}, 3.0, {"": Room(1, DEVICE // 2)})
    shadow.look({}, 3.5, {"": Room(1, DEVICE // 2)})
    assert shadow.next_end() == 63, "of one slot there is g alone"


def test_types_of_devices_have_room_of_their_own():
    shadow = FixedShadow(idle_s=60)
    limits = {"A100": Room(1, DEVICE), "T4": Room(50, 50 * DEVICE)}
    for second, name in enumerate("abcd"):
        shadow.look({name: Use(1, {Slot("A100"): 1})}, float(second), limits)
    shadow.look({"t": Use(1, {Slot("T4"): 1})}, 4.0, limits)
    shadow.look({}, 5.0, limits)
    assert shadow.resident_s == 6, "one A100 that they take from each other, and then a T4"


def test_an_idle_instance_is_used_before_another_is_imagined_on_another_type():
    shadow = FixedShadow(idle_s=60)
    shadow.look({"f": Use(1, {Slot("T4"): 1})}, 0.0, {})
    shadow.look({"f": Use(1, {Slot("A100"): 1})}, 1.0, {})  # in reality the T4 was given up
    shadow.look({"f": Use(2, {Slot("A100"): 2})}, 2.0, {})
    shadow.look({}, 3.0, {})
    assert shadow.resident_s == 4


def test_room_is_what_is_free_and_what_is_held_by_the_one_who_asks():
    devices = [("T4", 4, 1, 2), ("T4", 4, 0, 0), ("A100", 2, 2, 0)]
    assert room_of(devices) == {"T4": Room(1, 3 * DEVICE // 4), "A100": Room(1, DEVICE)}
    assert room_of([("T4", 4, 0, 0)]) == {"T4": Room(0, 0)}


@pytest.mark.parametrize("slots", [2, 3, 7, 64, 999])
def test_a_device_holds_as_many_instances_as_it_has_slots(slots):
    shadow = FixedShadow(idle_s=60)
    slot = Slot.one_of(slots)
    room = room_of([("", slots, slots, 0)])
    shadow.look({"f": Use(slots, {slot: 1}), "g": Use(1, {slot: 1})}, 0.0, room)
    shadow.look({"g": Use(1, {slot: 1})}, 1.0, room)
    assert shadow.next_end() == 60, "one f made way for g, which found no room before"
    shadow.look({}, 60.5, room)
    assert shadow.next_end() == 61


def test_an_instance_that_stays_in_use_does_not_end():
    shadow = FixedShadow(idle_s=60)
    looked(shadow, {"f": 2, "g": 1}, 0.0)
    looked(shadow, {"f": 1, "g": 1}, 1.0)
    assert shadow.next_end({"f": 1, "g": 1}) == 60, "the second f"
    assert shadow.next_end({"f": 2, "g": 1}) == float("inf")
