"""Keep-warm: what is expected, kept, released, loaded ahead and displaced; and the rules it is compared with."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from dgsf.core.arrivals import ArrivalModel
from dgsf.core.keepwarm import FIRST_WORTH_S, TARGET, Budget, KeepWarm, Resident, worth_waiting
from dgsf.core.levels import Levels, with_levels
from dgsf.core.spares import spare_chances
from dgsf.sim.warmbound import fewest_cold
from dgsf.sim.warmpool import Count, Shape, WarmPool, replay
from dgsf.sim.warmrules import FixedIdle, GreedyDual, Histogram, LeastRecent, Ours

NOBODY: Counter[str] = Counter()


def rate_of(model: ArrivalModel[str], function: str, now: float) -> float:
    return dict(zip(model.functions, model.rates(now).tolist(), strict=True))[function]


def test_a_function_called_more_often_is_expected_sooner():
    model = ArrivalModel()
    for second in range(0, 3600, 60):
        model.saw("often", second)
    model.saw("once", 3540)
    assert rate_of(model, "often", 3600) > 3 * rate_of(model, "once", 3600) > 0


def test_expectation_fades_and_memory_counts_what_it_explains():
    model = ArrivalModel()
    for second in range(0, 30_000, 300):
        model.saw("f", second)
    assert rate_of(model, "f", 30_000) > rate_of(model, "f", 33_600) > rate_of(model, "f", 120_000)
    assert rate_of(model, "f", 30_000) == pytest.approx(1 / 300, rel=0.5)
    assert model.weights.sum() == pytest.approx(1, abs=0.1)


def test_a_caller_who_waits_for_each_answer_is_expected_after_it_and_not_before():
    model = ArrivalModel()
    for second in range(0, 60_000, 600):  # calls of 100 s, the next of each pair 10 s after the answer
        for begin in (second, second + 110):
            model.saw("f", begin)
            model.ended("f", begin + 100)
    model.saw("f", 60_000)
    before = rate_of(model, "f", 60_099)
    model.ended("f", 60_100)
    assert rate_of(model, "f", 60_101) > 3 * before


def test_a_caller_who_looks_at_each_answer_for_a_while_is_expected_after_that_while():
    model = ArrivalModel()
    for hour in range(200):  # four calls of 10 s, each 25 s after the answer to the one before
        for second in range(3600 * hour, 3600 * hour + 140, 35):
            model.saw("f", second)
            model.ended("f", second + 10)
    model.saw("f", 720_000)
    model.ended("f", 720_010)
    assert rate_of(model, "f", 720_030) > 1.5 * rate_of(model, "f", 720_012)


def test_a_function_called_often_goes_by_its_own_past_and_a_new_one_by_that_of_all():
    def after_one_call(function: str) -> float:
        model = ArrivalModel()
        rng, now = random.Random(3), 0.0
        for _ in range(300):  # "pairs" calls twice within seconds, "alone" never does; both hourly
            now += rng.uniform(3000, 4200)
            model.saw("alone", now)
            now += rng.uniform(3000, 4200)
            model.saw("pairs", now)
            model.saw("pairs", now + 5)
        now += 7200
        model.saw(function, now)
        return rate_of(model, function, now + 4)

    alone, new, pairs = (after_one_call(function) for function in ("alone", "new", "pairs"))
    assert alone < 0.5 * new < 0.8 * pairs


def test_a_busy_hour_of_others_makes_a_quiet_but_popular_function_more_expected_and_a_rare_one_less_so():
    model = ArrivalModel()
    for second in range(0, 86_400, 60):
        model.saw("popular" if second % 180 else "other", second)
    model.saw("rare", 86_400)
    quiet, busy = 100_000, 101_000
    before = rate_of(model, "popular", quiet), rate_of(model, "rare", quiet)
    for second in range(quiet, busy, 10):
        model.saw("other", second)
    after = rate_of(model, "popular", busy), rate_of(model, "rare", busy)
    assert after[0] > 1.2 * before[0]
    assert after[0] - before[0] > 10 * (after[1] - before[1])


def test_the_same_calls_teach_the_same_bit_for_bit():
    def taught() -> list[float]:
        model = ArrivalModel()
        for second in range(0, 50_000, 37):
            model.saw(f"f{second % 23}", second)
        return model.rates(50_000.0).tolist()

    assert taught() == taught()


def test_the_first_spare_is_used_first_and_further_ones_by_calls_that_come_close_together():
    rare = spare_chances(0, 1 / 3600, 25.0, 10.0)
    assert rare[0] > 0.99 and sum(rare[1:]) < 0.01
    now = spare_chances(2, 1 / 10, 25.0, 0.01)
    assert now[0] == pytest.approx(1.0, abs=0.01)
    soon = spare_chances(2, 1 / 10, 25.0, 20.0)
    assert 0.5 > soon[0] > soon[1] > soon[2] > soon[3] > 0
    assert sum(soon) <= 1.0


def test_levels_that_a_crowd_has_reached_are_expected_again_and_forgotten_with_time():
    levels = Levels()
    for at in range(30):
        for running in range(20):
            levels.saw("crowded", running, float(at))
    soon, late = (levels.rates(now)["crowded"] for now in (31.0, 3_600.0))
    assert set(soon) == set(range(5, 21))  # the first four are told by calls and runs
    assert min(soon.values()) > 0.1 > 100 * max(late.values())


def test_an_instance_is_never_wanted_less_than_the_one_after_it():
    assert with_levels([0.0, 0.5, 0.1], {6: 0.3, 7: 0.2, 9: 0.01}, 2, 0.1) == [0.5, 0.5, 0.3, 0.3, 0.2]
    assert with_levels([0.2, 0.1], {}, 0, 0.1) == [0.2, 0.1]
    assert with_levels([0.2, 0.1], {2: 0.9}, 5, 0.1) == [0.2, 0.1]  # these run already


def test_a_debt_makes_a_warm_start_worth_less_also_while_little_is_allowed():
    restraints = [Budget(allowed=1_000.0, spent=spent).restraint() for spent in (0.0, 980.0, 990.0, 1_000.0, 9e9)]
    assert restraints[:2] == [1.0, 1.0]
    assert 1.0 > restraints[2] > restraints[3] > restraints[4] > 0
    assert Budget(spent=5.0).restraint() > 0


def test_on_one_crowded_function_cold_starts_and_time_are_not_above_those_of_a_fixed_idle_time():
    chance = random.Random(3)
    calls = [
        (burst * 90.0 + chance.uniform(0.0, 15.0), "crowded", chance.expovariate(1.0))
        for burst in range(20)
        for _ in range(chance.randrange(20, 120))
    ]
    calls.sort()
    budget = Budget()
    fixed, ours = (WarmPool(8, 2.0, keeper, waits=False) for keeper in (FixedIdle(60.0), Ours(8, 2.0, budget)))
    for call in calls:
        fixed.call(*call)
        budget.allowed = fixed.resident_s
        ours.call(*call)
    assert ours.count.cold <= fixed.count.cold
    assert ours.count.resident_s <= fixed.count.resident_s


def test_a_spare_that_comes_when_the_running_call_has_probably_ended_is_worth_little():
    quick, slow = (spare_chances(1, 1 / 600, 25.0, load_s)[0] for load_s in (1.0, 60.0))
    assert quick > 0.9
    assert slow < 0.15


def test_a_function_that_runs_is_expected_at_the_levels_above():
    keeper = KeepWarm(4, 30.0, Budget())
    for second in range(0, 600, 5):
        keeper.saw("hot", 3, second)
    expected = keeper.expect(Counter(hot=3), 600.0)
    levels = [key for _, key in expected.ranked()]
    assert levels[0] == ("hot", 4) and ("hot", 3) not in levels and ("hot", 5) in levels


def test_a_slow_load_displaces_less_readily_than_a_quick_one():
    def fetches(load_s: float) -> int:
        keeper = KeepWarm(2, load_s, Budget())
        rng, now = random.Random(2), 0.0
        for _ in range(400):
            now += rng.expovariate(1 / 20)
            keeper.saw(rng.choices(["hot", "cool"], [6, 1])[0], 0, now)
        pool = [Resident("cool", 1, idle_since=now), Resident("other", 1)]
        return len(keeper.review(1, pool, Counter(other=1), 1, now).fetch)

    assert fetches(1.0) == 1
    assert fetches(60.0) == 0


def warm_keeper(load_s: float = 10.0, slots: int = 2) -> KeepWarm:
    keeper = KeepWarm(slots, load_s, Budget())
    for second in range(0, 6000, 30):
        keeper.saw("hot", 0, second)
    keeper.saw("cold", 0, 0.0)
    return keeper


def test_an_idle_device_is_kept_for_what_it_is_expected_to_serve_and_then_released():
    keeper = warm_keeper()
    pool = [Resident("hot", 1, idle_since=6000.0)]
    kept = keeper.review(1, pool, NOBODY, 1, 6000.0)
    assert not kept.release and kept.again_at > 6000.0
    assert keeper.review(1, pool, NOBODY, 1, 6000.0 + 86_400).release


def test_a_free_slot_of_a_working_device_gets_the_function_expected_next():
    keeper = warm_keeper()
    pool = [Resident("cold", 1, idle_since=None)]
    review = keeper.review(1, pool, Counter(cold=1), 1, 6000.0)
    assert review.fetch == (("hot", None),)


def test_a_full_device_gives_up_the_least_expected_for_the_most_expected():
    keeper = warm_keeper()
    cold, other = Resident("cold", 1, idle_since=10.0), Resident("other", 1)
    review = keeper.review(1, [cold, other], Counter(other=1), 1, 6000.0)
    assert review.fetch == (("hot", cold),)
    assert keeper.victim([cold, Resident("hot", 2, idle_since=5990.0)], NOBODY, 2, 6000.0) is cold
    assert keeper.victim([], Counter(other=1), 0, 6000.0) is None


def test_another_device_is_opened_if_what_it_would_hold_is_wanted_often_and_else_somebody_is_displaced():
    def displaced(every_s: float) -> bool:
        keeper = KeepWarm(2, 10.0, Budget())
        rng, now = random.Random(4), 0.0
        for _ in range(200):
            now += rng.expovariate(1 / every_s)
            keeper.saw(rng.choice("abc"), 0, now)
        pool = [Resident("a", 1, idle_since=now), Resident("b", 1, idle_since=now)]
        return keeper.victim(pool, NOBODY, 2, now + every_s) is not None

    assert not displaced(5.0)
    assert displaced(1200.0)


def test_a_warm_start_is_worth_more_while_less_is_spent_than_allowed():
    budget = Budget()
    assert budget.worth_s() == FIRST_WORTH_S
    budget.allowed = 1000.0
    rich = budget.worth_s()
    budget.spent = 1500.0
    assert rich > FIRST_WORTH_S > budget.worth_s() > 0


def test_a_debt_that_lasts_is_learned():
    budget = Budget()
    for hour in range(1, 50):
        budget.allowed, budget.spent = 3600.0 * hour, 3800.0 * hour
        budget.worth_s()
    budget.spent = budget.allowed * TARGET
    assert budget.worth_s() < 0.7 * FIRST_WORTH_S


@pytest.mark.parametrize(
    ("queued", "running", "run_s", "load_s", "waits"),
    [(0, 1, 10, 30, True), (0, 1, 100, 30, False), (0, 0, 1, 30, False), (5, 1, 10, 30, False), (5, 4, 10, 30, True)],
)
def test_a_call_waits_only_if_that_is_sooner_than_a_load(queued, running, run_s, load_s, waits):
    assert worth_waiting(queued, running, run_s, load_s) is waits


# --- the pool and the other rules -------------------------------------------------------------
def test_a_fixed_idle_time_counts_as_it_should():
    calls = [(0.0, "a", 10.0), (60.0, "a", 10.0), (500.0, "a", 10.0), (505.0, "a", 10.0), (2000.0, "b", 1.0)]
    count = replay(WarmPool(1, 5.0, FixedIdle(60.0), waits=False), calls)
    assert (count.calls, count.cold) == (5, 4)  # the second call is warm; the fourth finds its instance busy
    # 0 to 70 + 60, 500 to 515 + 60, 505 to 520 + 60
    assert count.resident_s == pytest.approx(130 + 75 + 75)


def test_slots_share_one_device_and_a_waiting_call_is_no_cold_start():
    calls = [(0.0, "a", 10.0), (1.0, "b", 10.0), (2.0, "a", 10.0), (100.0, "c", 1.0)]
    count = replay(WarmPool(2, 30.0, FixedIdle(1.0), waits=True), calls)
    assert (count.cold, count.waited) == (3, 1)
    assert count.waited_s == pytest.approx(38.0)
    assert count.resident_s == pytest.approx(51.0)


def test_calls_that_share_weights_need_them_once_and_only_those_that_await_the_load_are_cold():
    calls = [(0.0, "a", 10.0), (2.0, "a", 10.0), (6.0, "a", 10.0), (7.0, "a", 10.0), (100.0, "b", 1.0)]
    pool = WarmPool(Shape(4, 3, shared=True), 5.0, FixedIdle(1.0), waits=False)
    count = replay(pool, calls)
    # 0: loads until 5; 2: waits for that; 6: warm; 7: three run there already, so another device loads
    assert count.cold == 4  # and b
    assert count.resident_s == pytest.approx((16.0 + 1) + (15 + 1))


def test_a_running_function_needs_no_second_instance_where_weights_are_shared():
    keeper = KeepWarm(4, 30.0, Budget(), shared=True)
    for second in range(0, 600, 5):
        keeper.saw("hot", 3, second)
    assert not list(keeper.expect(Counter(hot=3), 600.0).ranked())
    assert [key for _, key in keeper.expect(NOBODY, 600.0).ranked()] == [("hot", 1)]


def test_the_bound_for_shared_weights_pays_only_for_times_in_which_nothing_of_the_function_runs():
    calls = [(0.0, "a", 10.0), (5.0, "a", 10.0), (20.0, "a", 10.0), (40.0, "b", 1.0)]
    # a runs from 0 to 15 and from 20 to 30; to keep it in between takes 5 s more
    assert fewest_cold(calls, 1, 24.9, shared=True) == 4
    assert fewest_cold(calls, 1, 25.0, shared=True) == 3  # the second call finds it running
    assert fewest_cold(calls, 1, 30.0, shared=True) == 2
    assert fewest_cold(calls, 1, 30.0) == 4  # without sharing the runs alone take 30 s, and none is free


def test_counting_begins_where_it_is_told():
    calls = [(float(at), "a", 1.0) for at in range(0, 1000, 100)]
    count = replay(WarmPool(1, 1.0, FixedIdle(10.0), waits=False, count_from=500.0), calls)
    assert (count.calls, count.cold) == (5, 5)
    assert count.resident_s == pytest.approx(4 * 12.0)


def test_least_recently_used_and_greedy_dual_stay_within_their_devices():
    calls = [(100.0 * number, name, 1.0) for number, name in enumerate("aaaabcbcbca")]
    lru = replay(WarmPool(2, 5.0, LeastRecent(1), waits=False), calls)
    dual = replay(WarmPool(2, 5.0, GreedyDual(1), waits=False), calls)
    assert lru.resident_s == dual.resident_s == pytest.approx(1000.0)
    assert lru.cold == 4  # a, b, c, and a again
    assert dual.cold > lru.cold  # it keeps the frequent a, so that b and c displace each other


def test_the_histogram_keeps_a_regular_function_warm_and_unloads_in_between():
    calls = [(600.0 * number, "every-ten-minutes", 1.0) for number in range(40)]
    histogram = replay(WarmPool(1, 5.0, Histogram(), waits=False, count_from=12_000.0), calls)
    always = replay(WarmPool(1, 5.0, FixedIdle(700.0), waits=False, count_from=12_000.0), calls)
    assert histogram.cold == always.cold == 0
    assert histogram.resident_s < 0.5 * always.resident_s


def beside_fixed(calls: list[tuple[float, str, float]], slots: int, load_s: float) -> tuple[Count, Count]:
    fixed = WarmPool(slots, load_s, FixedIdle(60.0), waits=False)
    budget = Budget()
    ours = WarmPool(slots, load_s, Ours(slots, load_s, budget), waits=False)
    for at, function, run_s in calls:
        fixed.call(at, function, run_s)
        budget.allowed = fixed.resident_s
        ours.call(at, function, run_s)
    return ours.count, fixed.count


def test_ours_beats_a_fixed_time_on_a_popular_function_among_rare_ones():
    rng = random.Random(1)
    at, calls = 0.0, []
    for number in range(600):
        at += rng.expovariate(1 / 60)
        calls.append((at, "popular" if rng.random() < 0.5 else f"rare-{number}", 1.0))
    ours, fixed = beside_fixed(calls, 2, 10.0)
    assert ours.cold < 0.9 * fixed.cold
    assert ours.resident_s < 1.02 * fixed.resident_s


def test_a_regular_function_is_loaded_just_before_it_is_due():
    ours, fixed = beside_fixed([(900.0 * number, "schedule", 1.0) for number in range(30)], 2, 10.0)
    assert fixed.cold == 30
    assert ours.cold <= 6  # until its rhythm is known
    assert ours.resident_s < fixed.resident_s
