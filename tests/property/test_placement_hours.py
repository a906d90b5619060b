"""Placing for the fewest GPU hours: what matters is how long tasks are beside one another, not in which unit."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgsf.core.placement import Placer, Request, make_policy
from dgsf.core.placement.hours import REMEMBERED, Typical
from dgsf.sim.tenants import gpu_pool

tasks = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 400), st.sampled_from([50, 140, 250, 500]), st.sampled_from("tu")),
    min_size=2,
    max_size=30,
)


def places(tasks, policy, unit):
    """Where each goes that arrives so long after the one before; nothing ends."""
    pool = gpu_pool(30)
    placer = Placer(pool, make_policy(policy), Random(1))
    found = []
    for later, duration, share, tenant in tasks:
        pool.now += later * unit
        request = Request(("any",), 0, tenant=tenant, share=share, duration_s=duration * unit)
        placement = placer.place(request)
        pool.take(request, placement, pool.now + duration * unit)
        found.append((placement.row, placement.columns))
    return found


@pytest.mark.parametrize("policy", ["dgsf", "dgsf_slices"])
@given(tasks=tasks, power=st.integers(-8, 8))
@settings(max_examples=40)
def test_tasks_of_seconds_and_of_hours_are_placed_alike(policy, tasks, power):
    assert places(tasks, policy, 2.0**power) == places(tasks, policy, 1.0)


@given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=40))
def test_the_typical_duration_is_the_mean_of_what_came(durations):
    typical = Typical()
    for duration in durations:
        typical.saw(duration)
    assert typical.seconds == pytest.approx(sum(durations) / len(durations))


def test_the_typical_duration_follows_a_change():
    typical = Typical()
    for duration in [100.0] * 10_000 + [1.0] * 5 * REMEMBERED:
        typical.saw(duration)
    assert typical.seconds == pytest.approx(1.0, rel=0.7)
