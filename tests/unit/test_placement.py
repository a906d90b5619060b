"""Which device the next worker goes to."""

from dataclasses import replace

from dgsf.core.placement import DeviceView, Request, choose, why_not

GIB = 1024**3


def device(number, kind="cpu", type_="cpu", free_slots=4, free=8 * GIB, healthy=True):
    return DeviceView(number, type_, kind, healthy, 4, 8 * GIB, free_slots, free)


def test_the_fullest_device_that_fits_is_chosen():
    pool = [device(1), device(2, free_slots=1), device(3, free_slots=2)]
    assert choose(Request(("any",), GIB), pool).id == 2


def test_a_preferred_type_wins_over_a_better_fit():
    pool = [device(1, "sim", "T4", free_slots=1), device(2, "sim", "A100")]
    assert choose(Request(("A100", "T4"), GIB), pool).id == 2


def test_types_match_whatever_their_case():
    assert choose(Request(("a100",), GIB), [device(1, "sim", "A100")]).id == 1


def test_unhealthy_full_and_small_devices_are_passed_over():
    pool = [device(1, healthy=False), device(2, free_slots=0), device(3, free=GIB // 2)]
    assert choose(Request(("any",), GIB), pool) is None


def test_a_type_that_is_not_there_is_named_with_what_is():
    told = why_not(Request(("H100",), GIB), [device(1, "sim", "A100"), device(2)])
    assert told == "no device of type H100; the pool has: A100, cpu"


def test_too_much_memory_names_the_largest():
    told = why_not(Request(("any",), 9 * GIB), [device(1)])
    assert "9.0 GiB (9663676416 bytes)" in told and "8.0 GiB (8589934592 bytes)" in told


def test_too_many_processors_name_the_largest_node():
    small, large = (replace(device(number), node_cpu_milli=1000 * number) for number in (2, 4))
    told = why_not(Request(("any",), GIB, cpu_milli=4500), [small, large])
    assert told == "asks for 4.5 processors; the largest node with a matching device has 4: lower cpu="
    assert why_not(Request(("any",), GIB, cpu_milli=4000), [small, large]) is None


def test_a_full_pool_is_no_reason_for_ever():
    assert why_not(Request(("any",), GIB), [device(1, free_slots=0, free=0)]) is None


def test_a_host_is_no_device_and_a_device_no_host():
    host = device(1, "host", "host")
    assert choose(Request(("any",), GIB), [host]) is None
    assert choose(Request(("host",), GIB), [device(2), host]).id == 1
    assert choose(Request(("host",), GIB), [device(2)]) is None
    assert why_not(Request(("any",), GIB), [host]) == "no device of type any; the pool has: none"
