"""The bound on cold starts: equal to trying everything, and never above what a rule achieves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgsf.sim.warmbound import fewest_cold, idle_gaps
from dgsf.sim.warmpool import WarmCall, WarmPool, replay
from dgsf.sim.warmrules import FixedIdle, LeastRecent

steps = st.tuples(st.integers(0, 40), st.sampled_from("ab"), st.integers(0, 30))


def made(steps: list[tuple[int, str, int]]) -> list[WarmCall]:
    now, calls = 0.0, []
    for gap, function, run_s in steps:
        now += gap
        calls.append((now, function, float(run_s)))
    return calls


def cheapest(calls: list[WarmCall], begin: int, ends: tuple[tuple[float, str], ...]) -> dict[int, float]:
    """By trying every way to hand instances on: warm starts -> the least idle seconds that they take."""
    if begin == len(calls):
        return {0: 0.0}
    at, function, run_s = calls[begin]
    after = (*ends, (at + run_s, function))
    best = cheapest(calls, begin + 1, after)
    for place, (ended, of) in enumerate(ends):
        if of == function and ended <= at:
            rest = cheapest(calls, begin + 1, (*after[:place], *after[place + 1 :]))
            for warm, idle_s in rest.items():
                best[warm + 1] = min(best.get(warm + 1, float("inf")), idle_s + at - ended)
    return best


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, min_size=1, max_size=6))
def test_the_shortest_gaps_are_the_cheapest_way_to_any_number_of_warm_starts(steps):
    calls = made(steps)
    gaps = sorted(idle_gaps(calls))
    expected = cheapest(calls, 0, ())
    assert len(gaps) == max(expected)
    for warm, idle_s in expected.items():
        assert sum(gaps[:warm]) == pytest.approx(idle_s)


@settings(max_examples=60, deadline=None)
@given(
    calls=st.lists(steps, min_size=1, max_size=40).map(made),
    slots=st.integers(1, 4),
    load_s=st.sampled_from([0.0, 3.0, 30.0]),
    count_from=st.sampled_from([0.0, 100.0]),
    keeper=st.sampled_from([lambda: FixedIdle(20.0), lambda: FixedIdle(100.0), lambda: LeastRecent(1)]),
)
def test_no_rule_that_loads_nothing_ahead_has_fewer_cold_starts(calls, slots, load_s, count_from, keeper):
    count = replay(WarmPool(slots, load_s, keeper(), waits=False, count_from=count_from), calls)
    assert fewest_cold(calls, slots, count.resident_s + 1e-6, count_from) <= count.cold


def test_instances_from_before_the_count_began_are_there_whoever_else_was_called_then():
    calls = [(15.0, "a", 0.0), (44.0, "a", 7.0), (75.0, "a", 26.0), (100.0, "a", 0.0)]
    fixed = replay(WarmPool(1, 30.0, FixedIdle(20.0), waits=False, count_from=100.0), calls)
    assert fewest_cold(calls, 1, fixed.resident_s, 100.0) == fixed.cold == 0


def test_with_one_slot_and_no_load_the_bound_is_what_a_perfect_choice_gets():
    calls = [(0.0, "a", 10.0), (15.0, "a", 10.0), (100.0, "a", 10.0), (1000.0, "a", 10.0), (1010.0, "b", 0.0)]
    assert fewest_cold(calls, 1, 40.0 + 5.0) == 4
    assert fewest_cold(calls, 1, 40.0 + 5.0 + 74.0) == 4
    assert fewest_cold(calls, 1, 40.0 + 5.0 + 75.0) == 3
    assert fewest_cold(calls, 1, 1e6) == 2  # the first call of each is always cold
