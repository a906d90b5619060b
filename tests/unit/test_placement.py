"""Which device the next worker goes to."""

from dataclasses import replace
from random import Random

import pytest

from dgsf.core.placement import DeviceView, KeptPoolChooser, Refusal, Request, choose, placer, why_not
from dgsf.core.placement.ours import Dgsf
from dgsf.core.placement.pool import Pool

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


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (
            {"memory_bytes": 64 * GIB},
            "asks for 64.0 GiB (68719476736 bytes) of memory; the largest matching device has",
        ),
        ({"devices": 9}, "asks for 9 devices of one node; the largest matching node has 2"),
        ({"cpu_milli": 9000}, "asks for 9 processors; the largest matching node has 8"),
        ({"devices": 2, "memory_bytes": 5 * GIB}, "no node is large enough for 2 whole device(s) and 5.0 GiB"),
        ({"types": ("H100",)}, "no device of type H100; the pool has: cpu"),
    ],
)
def test_what_can_never_be_had_is_refused_for_ever_by_its_true_reason(asked, reason):
    large, small = (
        replace(device(number, healthy=number == 1), memory_bytes=size * GIB, node="n", node_cpu_milli=8000)
        for number, size in ((1, 8), (2, 4))
    )
    answer = KeptPoolChooser().place(Request(**{"types": ("any",), "memory_bytes": 0} | asked), [large, small])
    assert isinstance(answer, Refusal) and not answer.ever
    assert answer.reason.startswith(reason)


def test_what_is_taken_now_is_refused_for_now_with_all_that_has_to_be_free():
    answer = KeptPoolChooser().place(Request(("any",), 8 * GIB, cpu_milli=500), [device(1, free=GIB)])
    asked = "250/1000 of a device, 8.0 GiB (8589934592 bytes) of memory and 0.5 processors"
    assert answer == Refusal(f"no healthy device of a fitting type has {asked} free now")


@pytest.mark.parametrize(
    "wrong",
    [
        {"types": ()}, {"types": ("",)}, {"memory_bytes": -1}, {"share": -1}, {"share": 1001}, {"devices": -1},
        {"cpu_milli": -1}, {"host_memory": -1}, {"duration_s": float("nan")}, {"duration_s": -1.0},
        {"run_s": float("inf")}, {"deadline_s": float("nan")}, {"deadline_s": -0.1},
    ],
)  # fmt: skip
def test_a_request_that_makes_no_sense_is_not_made(wrong):
    with pytest.raises(ValueError, match="|".join(wrong)):
        Request(**{"types": ("any",), "memory_bytes": GIB} | wrong)


def test_a_kept_pool_forgets_weights_that_are_gone_and_measures_memory_by_what_is_free_now():
    chooser, wanted = KeptPoolChooser(), Request(("any",), GIB, weights="f")
    cold = [device(1), device(2)]
    warm = [cold[0], replace(cold[1], weights=frozenset("f"))]
    assert [chooser.choose(wanted, pool).id for pool in (cold, warm, cold)] == [1, 2, 1]
    pools = [[device(1), device(2)], [device(1, free=3 * GIB), device(2, free=2 * GIB)], [device(2), device(1)]]
    assert [chooser.choose(wanted, pool).id for pool in pools] == [1, 2, 1]


def test_functions_of_one_shape_share_their_scores_wherever_their_weights_are(monkeypatch):
    scored = []
    plain = Dgsf.score

    def counted(self, pool, need, rows):
        scored.append(len(rows))
        return plain(self, pool, need, rows)

    monkeypatch.setattr(Dgsf, "score", counted)
    pool = [replace(device(number), weights=frozenset({f"f{number}"})) for number in range(1, 31)]
    chooser = KeptPoolChooser()
    for number in range(30, 0, -1):
        answer = chooser.place(Request(("any",), GIB, weights=f"f{number}"), pool)
        assert answer.devices == (number,)
    assert scored == [30, 1, *[1] * 29], "all once, and for each the one device that draws it"


@pytest.mark.parametrize("duration_s", [0.0, 60.0])
def test_weights_draw_alike_on_few_devices_and_on_many(monkeypatch, duration_s):
    random, asked = Random(7), Request(("any",), GIB, weights="f", duration_s=duration_s)
    for _ in range(20):
        pool = [
            replace(device(number, free=random.randint(0, 4) * GIB), weights=frozenset(random.choice(("", "f"))))
            for number in range(1, 20)
        ]
        answers = set()
        for few in (0, 64):
            monkeypatch.setattr(placer, "FEW", few)
            answers.add(KeptPoolChooser().place(asked, pool))
        assert len(answers) == 1


def test_what_is_expected_of_devices_is_what_was_told_last():
    pool = Pool.of([device(number) for number in range(3)])
    for told, expected in [
        ({0: 5.0, 2: 7.0}, {5.0, 0.0, 7.0}),
        ({0: 6.0, 2: 8.0}, {6.0, 0.0, 8.0}),
        ({2: 8.0, 9: 1.0}, {0.0, 8.0}),  # one of them is not here
        ({}, {0.0}),
        ({1: 3.0}, {0.0, 3.0}),
    ]:
        pool.expect_all(told)
        assert set(pool.until[pool.ids >= 0].tolist()) == expected
        assert all(pool.until[pool.where[number]] == told.get(number, 0.0) for number in range(3))
