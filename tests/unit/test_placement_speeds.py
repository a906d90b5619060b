"""Speeds by function and type: from a table, from runs, from what devices declare; and what placement makes of them."""

from __future__ import annotations

import json
from itertools import product
from random import Random

import numpy as np
import pytest

from dgsf.config import load_settings
from dgsf.core.placement import DeviceView, KeptPoolChooser, Placement, Placer, Pool, Request, Speeds, make_policy
from dgsf.core.placement.speeds import parse_speeds
from dgsf.errors import ConfigError
from dgsf.speedtable import read_speeds

GIB = 1024**3
TABLE = {("conv", "K80"): 1.0, ("conv", "V100"): 9.0, ("tiny", "K80"): 2.0, ("tiny", "V100"): 2.0}


def gpu(number, type_, speed=1.0, price=1.0, free=1000):
    return DeviceView(
        number,
        type_,
        "cuda",
        True,
        1,
        8 * GIB,
        1,
        8 * GIB,
        speed=speed,
        price=price,
        free_share=free,
        node=f"n{number}",
    )


def ask(function="f", types=("any",), **more):
    return Request(types, 0, function=function, share=100, **more)


def chosen(policy, request, devices):
    return Placer(Pool.of(devices), policy, Random(0)).place(request).devices[0]


def test_both_forms_of_a_table_are_read():
    simple = parse_speeds('{"conv": {"K80": 1, "V100": 9.0}}')
    assert simple == {("conv", "K80"): 1.0, ("conv", "V100"): 9.0}
    rows = {"v100": {"('conv', 1)": {"null": 9.0, "('x', 1)": [1, 2]}, "('conv', 2)": {"null": 12.0}}}
    rows["k80"] = {"('conv', 1)": {"null": 1.0}, "('huge', 1)": {"null": 0.0}}
    assert parse_speeds(json.dumps(rows)) == {("conv", "v100"): 9.0, ("conv", "k80"): 1.0}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "line 1, column 2"),
        ("[]", "expected an object: function -> device type -> speed"),
        ("{}", "has no speeds"),
        ('{"f": 3}', "'f': expected an object"),
        ('{"f": {"T4": "fast"}}', "function 'f', device type 'T4': 'fast' is no speed"),
        ('{"f": {"T4": 0}}', "0 is no speed"),
        ('{"f": {"T4": true}}', "True is no speed"),
        ('{"f": {"T4": NaN}}', "nan is no speed"),
        ('{"f": {"T4": 1, "T4": 2, "A100": 3}}', "'f': has 'T4' twice"),
        ('{"f": {"T4": 1, "t4": 2}}', "function 'f': device types 'T4' and 't4' are the same"),
        ('{"f": {"T4": 1}, "f": {"T4": 2}}', "the table: has 'f' twice"),
        ("""{"k80": {"('f', 1)": {"null": 2, "null": 3}}}""", "table 'k80', row .*: has 'null' twice"),
        ("""{"k80": {"('f', 1)": {"null": 2}}, "K80": {"('f', 1)": {"null": 3}}}""", "'k80' and 'K80' are the same"),
        ('{"k80": {"(1": {"null": 2}}}', "table 'k80', row '\\(1': expected a model"),
    ],
)
def test_a_wrong_table_is_told_with_file_and_place(tmp_path, text, told):
    file = tmp_path / "s.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=f"DGSF_SPEEDS=.*s.json: .*{told}"):
        read_speeds(file, "DGSF_SPEEDS")


def test_a_table_that_is_not_there_is_told(tmp_path):
    settings = load_settings({"DGSF_SPEEDS": str(tmp_path / "no.json")})
    with pytest.raises(ConfigError, match=r"no\.json: cannot be read"):
        read_speeds(tmp_path / settings.speeds, "DGSF_SPEEDS")


def test_a_table_compares_types_at_the_level_that_devices_declare():
    of = Speeds(TABLE).of(("t", "conv"), ["k80", "v100", "T4"], np.array([1.0, 1.0, 1.0]))
    assert of[1] / of[0] == pytest.approx(9) and of[0] * of[1] == pytest.approx(1) and of[2] == 1.0
    assert Speeds(TABLE).of(("t", "stranger"), ["k80", "v100"], np.array([1.0, 4.0])).tolist() == [1.0, 4.0]


def test_runs_tell_how_types_compare_and_few_of_them_tell_little():
    speeds, declared = Speeds(), np.array([1.0, 1.0])
    speeds.saw(("t", "f"), "K80", 8.0)
    assert not speeds.tells(("t", "f")) and speeds.of(("t", "f"), ["K80", "V100"], declared).tolist() == [1.0, 1.0]
    speeds.saw(("t", "f"), "V100", 2.0)
    few = speeds.of(("t", "f"), ["K80", "V100"], declared)
    for _ in range(100):
        speeds.saw(("t", "f"), "K80", 8.0)
        speeds.saw(("t", "f"), "V100", 2.0)
    many = speeds.of(("t", "f"), ["K80", "V100"], declared)
    assert 1.0 < few[1] / few[0] < 1.5 < 3.2 < many[1] / many[0] <= 4.0


def test_functions_of_one_name_that_belong_to_two_tenants_are_two_functions():
    speeds, declared = Speeds(TABLE), np.array([1.0, 1.0])
    for _ in range(64):
        for tenant, slow, quick in (("t", "K80", "V100"), ("u", "V100", "K80")):
            speeds.saw((tenant, "f"), slow, 8.0)
            speeds.saw((tenant, "f"), quick, 1.0)
    mine, theirs = (speeds.of((tenant, "f"), ["K80", "V100"], declared) for tenant in "tu")
    assert mine[1] > 4 * mine[0] and theirs[0] > 4 * theirs[1] and not speeds.tells(("w", "f"))
    of_table = [speeds.of((tenant, "conv"), ["k80", "v100"], declared).tolist() for tenant in "tu"]
    assert of_table[0] == of_table[1], "a table is for functions of that name, whoever has them"


def test_a_new_function_is_expected_to_gain_what_its_tenants_others_did_until_it_shows_otherwise():
    speeds, declared, types = Speeds(), np.array([1.0, 1.0]), ["K80", "V100"]
    for function, level in product("abcd", (1.0, 30.0)):
        for _ in range(10):
            speeds.saw(("t", function), "K80", 4.0 * level)
            speeds.saw(("t", function), "V100", level)
    slow, quick = speeds.of(("t", "new"), types, declared)
    assert 3.0 < quick / slow <= 4.0
    for _ in range(100):
        for type_ in types:
            speeds.saw(("t", "new"), type_, 5.0)
    slow, quick = speeds.of(("t", "new"), types, declared)
    assert 0.8 < quick / slow < 1.3
    assert speeds.of(("u", "new"), types, declared).tolist() == [1.0, 1.0]


def test_functions_that_keep_to_one_type_each_say_nothing_of_types_beside_one_another():
    speeds, declared, types = Speeds(), np.array([1.0, 4.0]), ["K80", "V100"]
    for function, type_ in product(range(5), types):
        for _ in range(60):
            speeds.saw(("t", f"{type_}{function}"), type_, 10.0)
    assert not speeds.tells(("t", "new"))
    assert speeds.of(("t", "new"), types, declared).tolist() == [1.0, 4.0]


def test_types_that_were_compared_in_pairs_only_keep_what_is_declared_between_the_pairs():
    speeds, declared, types = Speeds(), np.array([1.0, 2.0, 8.0, 16.0]), ["A", "B", "C", "D"]
    speeds.of(("t", "new"), types, declared)  # placement asks before anything runs
    for _ in range(60):
        for function, slow, quick in (("f", "A", "B"), ("g", "C", "D")):
            speeds.saw(("t", function), slow, 6.0)
            speeds.saw(("t", function), quick, 3.0)
    assert speeds.of(("t", "new"), types, declared) == pytest.approx(declared)


def test_what_is_declared_counts_also_if_a_run_has_ended_before_anybody_asked():
    speeds, declared, types = Speeds(), np.array([10.0, 1.0, 1.0]), ["A", "C", "D"]
    speeds.saw(("t", "one type only"), "A", 1.0)
    speeds.of(("t", "new"), types, declared)
    for _ in range(20):
        for function, type_, seconds in (("f", "A", 1.0), ("f", "C", 10.0), ("g", "C", 10.0), ("g", "D", 10.0)):
            speeds.saw(("t", function), type_, seconds)
    assert speeds.of(("t", "new"), types, declared) == pytest.approx(declared)


def test_one_function_that_is_called_all_the_time_does_not_decide_for_the_others():
    speeds, declared, types = Speeds(), np.array([1.0, 1.0]), ["K80", "V100"]
    for function in "abcdefgh":
        for _ in range(30):
            speeds.saw(("t", function), "K80", 8.0)
            speeds.saw(("t", function), "V100", 1.0)
    for _ in range(5000):
        for type_ in types:
            speeds.saw(("t", "odd"), type_, 1.0)
    slow, quick = speeds.of(("t", "new"), types, declared)
    assert quick / slow > 4.0


@pytest.mark.parametrize("name", ["gavel", "dgsf"])
def test_a_policy_goes_by_the_table_then_by_runs_then_by_the_tenants_others_then_by_what_devices_declare(name):
    devices = [gpu(1, "K80"), gpu(2, "V100")]
    assert chosen(make_policy(name, Speeds(TABLE)), ask("conv"), devices) == 2
    assert chosen(make_policy(name, Speeds({("conv", "K80"): 3.0, ("conv", "V100"): 1.0})), ask("conv"), devices) == 1
    learning = make_policy(name)
    assert chosen(learning, ask("f"), devices) == 1
    for _ in range(30):
        learning.ran(("", "f"), "K80", 5.0)
        learning.ran(("", "f"), "V100", 1.0)
    asked = (ask("f"), ask("g"), ask("g", tenant="another"))
    assert [chosen(learning, request, devices) for request in asked] == [2, 2, 1]
    assert chosen(make_policy(name), ask(), [gpu(1, "T4"), gpu(2, "A100", speed=4.0)]) == 2


@pytest.mark.parametrize("name", ["gavel", "dgsf"])
def test_a_price_that_is_not_worth_it_is_paid_only_for_a_deadline(name):
    devices = [gpu(1, "slow"), gpu(2, "fast", speed=1.5, price=30.0)]
    policy = make_policy(name)
    assert chosen(policy, ask(duration_s=2.0), devices) == 1
    assert chosen(policy, ask(duration_s=2.0, deadline_s=60.0), devices) == 1
    assert chosen(policy, ask(duration_s=2.0, deadline_s=2.5), devices) == 2
    assert chosen(policy, ask(run_s=2.0, deadline_s=2.5), devices) == 2
    assert chosen(policy, ask(run_s=2.0, deadline_s=0.1), devices) == 2, "too late everywhere: the least"


@pytest.mark.parametrize("name", ["gavel", "dgsf"])
def test_what_no_device_makes_faster_goes_where_it_is_cheap_in_whatever_order_devices_stand(name):
    fast, slow = {"speed": 4.0, "price": 2.8}, {"speed": 1.0, "price": 0.35}
    for devices, cheap in (
        ([gpu(1, "F", **fast), gpu(2, "S", **slow)], 2),
        ([gpu(1, "S", **slow), gpu(2, "F", **fast)], 1),
    ):
        for duration_s in (0.0, 100.0):
            assert chosen(make_policy(name), ask(scales=False, duration_s=duration_s), devices) == cheap


@pytest.mark.parametrize("name", ["gavel", "dgsf"])
def test_what_costs_nothing_is_taken_before_what_costs_something(name):
    rented, own = {"price": 5.0}, {"price": 0.0}
    for views, free in (
        ([gpu(1, "rented", **rented), gpu(2, "own", **own)], 2),
        ([gpu(1, "own", **own), gpu(2, "rented", **rented)], 1),
    ):
        assert KeptPoolChooser(name).choose(ask(), views).id == free
        assert chosen(make_policy(name), ask(duration_s=100.0), views) == free


@pytest.mark.parametrize("name", ["gavel", "dgsf"])
def test_a_type_that_costs_nothing_leaves_the_prices_of_the_others_as_they_are(name):
    full = gpu(1, "own", price=0.0, free=0)
    assert chosen(make_policy(name), ask(), [full, gpu(2, "dear", price=9.0), gpu(3, "cheap")]) == 3
    assert chosen(make_policy(name), ask(), [gpu(1, "own", price=0.0), gpu(2, "fast", speed=64.0)]) == 2
    pool = [gpu(1, "own", price=0.0), gpu(2, "given", price=0.0, free=300)]
    assert chosen(make_policy(name), ask(), pool) == 2, "nothing to compare: packing decides"


def test_where_a_cheap_type_gets_full_packing_decides():
    def types(free):
        cheap = [gpu(number, "cheap", free=free) for number in range(4)]
        return chosen(make_policy("dgsf"), ask(scales=False), [*cheap, gpu(4, "dear", price=2.0, free=100)])

    assert types(free=600) < 4
    assert types(free=150) == 4, "full to the last thousandth, as the other would be"


@pytest.mark.parametrize("name", ["gavel", "dgsf"])
def test_a_time_holds_on_the_type_where_it_was_seen(name):
    devices = [gpu(1, "slow"), gpu(2, "fast", speed=2.0, price=100.0)]
    for run_s, run_on, deadline_s, expected in (
        (2.0, "slow", 2.5, 1),
        (2.0, "slow", 1.5, 2),
        (1.0, "fast", 2.5, 1),
        (1.0, "fast", 1.5, 2),
        (1.0, "gone", 1.5, 2),  # as on the fastest
    ):
        request = ask(run_s=run_s, run_on=run_on, deadline_s=deadline_s)
        assert chosen(make_policy(name), request, devices) == expected, request


def test_the_order_of_types_comes_before_speed_and_price():
    devices = [gpu(1, "T4"), gpu(2, "A100", speed=8.0)]
    assert chosen(make_policy("dgsf"), ask(types=("T4", "A100")), devices) == 1
    assert chosen(make_policy("dgsf"), ask(types=("T4|A100",)), devices) == 2
    assert chosen(make_policy("dgsf"), ask(scales=False), devices) == 1, "it gains nothing"


@pytest.mark.parametrize("name", ["gavel", "dgsf"])
@pytest.mark.parametrize("duration_s", [0.0, 100.0])
def test_the_order_of_types_is_for_those_that_meet_the_deadline(name, duration_s):
    devices = [gpu(1, "T4"), gpu(2, "A100", speed=4.0, price=50.0)]
    chooser = KeptPoolChooser(name)
    for deadline_s, expected in ((10.0, 2), (40.0, 1), (5.0, 1), (None, 1), (10.0, 2)):
        more = {"duration_s": duration_s, "run_s": 30.0, "run_on": "T4", "deadline_s": deadline_s}
        assert chooser.choose(ask(types=("T4", "A100"), **more), devices).id == expected, deadline_s
        assert chooser.choose(ask(types=("T4",), **more), devices).id == 1, "what is not accepted is not taken"


@pytest.mark.parametrize("name", ["gavel", "dgsf"])
def test_those_that_come_too_late_keep_their_order_behind_the_others(name):
    late = {"types": ("B", "A", "C"), "run_s": 30.0, "run_on": "A", "deadline_s": 10.0}
    devices = [gpu(1, "A"), gpu(2, "B"), gpu(3, "C", speed=4.0)]
    assert chosen(make_policy(name), ask(**late), devices) == 3
    assert chosen(make_policy(name), ask(**late), [*devices[:2], gpu(3, "C", speed=4.0, free=0)]) == 2


def test_the_default_packs_among_types_that_are_equals():
    devices = [gpu(1, "A"), gpu(2, "B", speed=1.05), gpu(3, "B", speed=1.05, free=300)]
    assert chosen(make_policy("dgsf"), ask(), devices) == 3
    assert chosen(make_policy("dgsf"), ask(), [gpu(1, "A", free=300), gpu(2, "B", speed=1.05)]) == 1


def test_a_fast_type_that_gets_full_is_kept_for_those_who_gain_from_it():
    table = {("much", "K80"): 1.0, ("much", "V100"): 9.0, ("little", "K80"): 1.0, ("little", "V100"): 1.3}
    policy = make_policy("dgsf", Speeds(table))

    def types(free):
        pool = Pool.of(
            [*(gpu(number, "K80") for number in range(8)), *(gpu(8 + n, "V100", free=free) for n in range(8))]
        )
        placer = Placer(pool, policy, Random(0))
        return ["K80" if placer.place(ask(name)).devices[0] < 8 else "V100" for name in ("much", "little")]

    for _ in range(20):
        assert types(free=1000) == ["V100", "V100"]
    assert types(free=120) == ["V100", "K80"]


def test_where_nothing_differs_a_table_of_others_changes_nothing():
    def run(policy):
        pool = Pool.of([gpu(number, "AB"[number % 2], free=100 * (number % 7) + 400) for number in range(30)])
        placer, places = Placer(pool, policy, Random(0)), []
        for turn in range(100):
            request = ask(f"f{turn % 3}", cpu_milli=turn % 2)
            answer = placer.place(request)
            if isinstance(answer, Placement):
                pool.take(request, answer)
                places.append(answer.devices)
        return places

    assert run(make_policy("dgsf", Speeds(TABLE))) == run(make_policy("dgsf"))
