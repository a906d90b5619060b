"""The warm pool under any calls and any rule: slots are never oversubscribed and the counts add up."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgsf.core.keepwarm import Budget
from dgsf.sim.warmpool import Shape, WarmPool
from dgsf.sim.warmrules import FixedIdle, GreedyDual, Histogram, LeastRecent, Ours

RULES = {
    "fixed": lambda shape: FixedIdle(60.0),
    "histogram": lambda shape: Histogram(600.0),
    "lru": lambda shape: LeastRecent(1),
    "greedy-dual": lambda shape: GreedyDual(2),
    "ours": lambda shape: Ours(shape, 7.0, Budget(allowed=1e6)),
}
shapes = st.builds(Shape, st.integers(1, 4), st.integers(0, 3), st.booleans())
steps = st.tuples(st.floats(0, 200), st.sampled_from("abcde"), st.floats(0, 60))


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=40, deadline=None)
@given(calls=st.lists(steps, max_size=40), shape=shapes, waits=st.booleans())
def test_no_device_holds_more_than_its_slots_or_runs_more_than_it_may(rule, calls, shape, waits):
    pool = WarmPool(shape, 7.0, RULES[rule](shape), waits=waits)
    now = 0.0
    for gap, function, run_s in calls:
        now += gap
        pool.call(now, function, run_s)
        held = Counter(item.device for item in pool.residents)
        assert all(count <= shape.slots for count in held.values())
        assert held == Counter(pool.held)
        assert all(runs <= shape.most_runs for runs in pool.busy_on.values())
        busy = Counter(item.function for item in pool.residents if item.idle_since is None)
        assert busy.keys() == (+pool.running).keys()
        assert shape.shared or busy == +pool.running
    pool.advance(now + 10_000)
    assert pool.count.calls == len(calls)
    assert pool.count.cold <= len(calls) + pool.count.fetched
    assert not +pool.running


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=40, deadline=None)
@given(calls=st.lists(steps, max_size=40), shape=shapes, waits=st.booleans(), devices=st.integers(1, 2))
def test_where_there_is_an_end_of_devices_no_more_are_held_and_every_call_runs(rule, calls, shape, waits, devices):
    pool = WarmPool(shape, 7.0, RULES[rule](shape), waits=waits, devices=devices)
    now = 0.0
    for gap, function, run_s in calls:
        now += gap / 10
        pool.call(now, function, run_s)
        assert len(pool.held) <= devices
        assert all(held <= shape.slots for held in pool.held.values())
        if pool.starved:
            assert not pool.displaceable(), "nobody waits while an idle one could make way"
    pool.advance(now + 100_000)
    assert not pool.starved
    assert not +pool.running
