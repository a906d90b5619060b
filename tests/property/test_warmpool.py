"""The warm pool under any calls and any rule: slots are never oversubscribed and the counts add up."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgsf.core.keepwarm import Budget
from dgsf.sim.warmpool import WarmPool
from dgsf.sim.warmrules import FixedIdle, GreedyDual, Histogram, LeastRecent, Ours

RULES = {
    "fixed": lambda slots: FixedIdle(60.0),
    "histogram": lambda slots: Histogram(600.0),
    "lru": lambda slots: LeastRecent(1),
    "greedy-dual": lambda slots: GreedyDual(2),
    "ours": lambda slots: Ours(slots, 7.0, Budget(allowed=1e6)),
}
steps = st.tuples(st.floats(0, 200), st.sampled_from("abcde"), st.floats(0, 60))


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=40, deadline=None)
@given(calls=st.lists(steps, max_size=40), slots=st.integers(1, 4), waits=st.booleans())
def test_no_device_holds_more_than_its_slots(rule, calls, slots, waits):
    pool = WarmPool(slots, 7.0, RULES[rule](slots), waits=waits)
    now = 0.0
    for gap, function, run_s in calls:
        now += gap
        pool.call(now, function, run_s)
        held = Counter(item.device for item in pool.residents)
        assert all(count <= slots for count in held.values())
        assert held == Counter(pool.held)
        busy = Counter(item.function for item in pool.residents if item.idle_since is None)
        assert busy == +pool.running
    pool.advance(now + 10_000)
    assert pool.count.calls == len(calls)
    assert pool.count.cold <= len(calls) + pool.count.fetched
    assert not +pool.running
