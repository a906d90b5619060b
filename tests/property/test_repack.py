"""Whatever is repacked: every task has a GPU, none is overfilled, and of few tasks the plan is the best there is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgsf.core.placement.plan import plan, time_in_use
from dgsf.errors import UsageError
from dgsf.sim.repack import Repacking, repack

TASK = st.tuples(st.integers(0, 300), st.integers(1, 200), st.integers(1, 1000))


def _intervals(tasks):
    return [(start / 10, (start + length) / 10, share) for start, length, share in tasks]


def _fits(intervals, gpus):
    for gpu in set(gpus):
        mine = [interval for interval, where in zip(intervals, gpus, strict=True) if where == gpu]
        if any(sum(share for start, end, share in mine if start <= now < end) > 1000 for now, _, _ in mine):
            return False
    return True


def _plans(tasks):
    """All ways to divide so many tasks among GPUs that are alike."""
    plans = [[]]
    for _ in range(tasks):
        plans = [[*plan, gpu] for plan in plans for gpu in range(max(plan, default=-1) + 2)]
    return plans


@settings(max_examples=60, deadline=None)
@given(tasks=st.lists(TASK, min_size=1, max_size=30), seed=st.integers(0, 5))
def test_a_plan_fits_and_takes_the_time_that_it_says(tasks, seed):
    intervals = _intervals(tasks)
    gpus, time = repack(intervals, rounds=300, seed=seed)
    assert len(gpus) == len(tasks) and _fits(intervals, gpus)
    assert time == pytest.approx(time_in_use(intervals, gpus))


@settings(max_examples=30, deadline=None)
@given(tasks=st.lists(TASK, min_size=1, max_size=6))
def test_of_few_tasks_the_plan_is_the_best_there_is(tasks):
    intervals = _intervals(tasks)
    best = min(time_in_use(intervals, gpus) for gpus in _plans(len(tasks)) if _fits(intervals, gpus))
    assert repack(intervals, rounds=3000)[1] == pytest.approx(best)


def test_the_same_seed_gives_the_same_plan_and_progress_is_told():
    intervals = _intervals([(7 * n % 300, 20 + 13 * n % 170, 50 + 37 * n % 700) for n in range(80)])
    told = []
    first = repack(intervals, 2000, 3, lambda *words: told.append(words))
    assert first == repack(intervals, 2000, 3)
    assert told == [(2000, 2000, pytest.approx(first[1]))]


@settings(max_examples=40, deadline=None)
@given(
    tasks=st.lists(st.tuples(st.integers(0, 900), st.integers(1, 400), st.integers(1, 10)), min_size=20, max_size=80)
)
def test_the_time_is_kept_right_through_exchanges_and_returns_whatever_the_width_of_shares(tasks):
    for unit in (100, 7):  # eight pieces of time to a word, and four
        intervals = _intervals([(start, length, share * unit) for start, length, share in tasks])
        repacking = Repacking(intervals)
        for seed in (1, 2):
            told = []
            gpus, time = repacking.run(400, seed, lambda *words, told=told: told.append(words))
            assert _fits(intervals, gpus)
            assert told == [(400, 400, pytest.approx(time))]


def test_a_plan_is_better_than_settling_the_batch_once():
    intervals = _intervals([(37 * n % 900, 20 + 53 * n % 370, 50 * (1 + 7 * n % 11)) for n in range(150)])
    assert repack(intervals)[1] < plan(intervals)[1] < repack(intervals, rounds=0)[1]


@settings(max_examples=60, deadline=None)
@given(times=st.lists(st.tuples(st.floats(0, 1), st.floats(1e-6, 1)), min_size=2, max_size=12))
def test_tasks_that_overlap_by_less_than_a_tick_are_not_put_together(times):
    intervals = [(start, start + length, 600) for start, length in times]
    gpus, _ = repack(intervals, rounds=100)
    assert _fits(intervals, gpus)


@settings(max_examples=40, deadline=None)
@given(
    tasks=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12), st.integers(1, 9)), min_size=10, max_size=60),
    unit=st.sampled_from([1e-9, 5e-4, 1.0, 4e15]),
    seed=st.integers(1, 5),
)
def test_tasks_are_planned_alike_whatever_the_unit_of_time(tasks, unit, seed):
    """Nanoseconds and ages: two that meet within a tick of the plan's clock must not end on one GPU."""
    intervals = [(start * unit, (start + length) * unit, 100 * share) for start, length, share in tasks]
    told = []
    gpus, time = repack(intervals, rounds=1500, seed=seed, report=lambda *words: told.append(words))
    assert _fits(intervals, gpus)
    assert time == pytest.approx(time_in_use(intervals, gpus))
    assert told[-1][2] == pytest.approx(time)


@settings(max_examples=40, deadline=None)
@given(
    tasks=st.lists(st.tuples(st.floats(0, 1), st.floats(1e-9, 1e-7), st.integers(1, 9)), min_size=10, max_size=60),
    seed=st.integers(1, 5),
)
def test_tasks_far_shorter_than_a_tick_are_planned_beside_long_ones(tasks, seed):
    long = [(0.0, 1.0, 100), (0.5, 9.5, 200)]
    intervals = [
        *long,
        *((start, start + length, 100 * share) for start, length, share in tasks if start + length > start),
    ]
    told = []
    gpus, time = repack(intervals, rounds=1500, seed=seed, report=lambda *words: told.append(words))
    assert _fits(intervals, gpus)
    assert told[-1][2] == pytest.approx(time)


def test_a_long_pause_costs_no_memory():
    gpus, time = repack([(0.0, 0.01, 500), (4e6, 4e6 + 0.01, 500)], rounds=100)
    assert len(gpus) == 2 and time == pytest.approx(0.02, rel=1e-3)


def test_nothing_to_plan_and_what_cannot_be_planned():
    assert repack([]) == ([], 0.0)
    for wrong in (
        (0.0, 1.0, 1001),
        (0.0, 1.0, 0),
        (1.0, 1.0, 10),
        (0.0, float("inf"), 10),
        (float("-inf"), 1.0, 10),
        (float("nan"), 1.0, 10),
    ):
        with pytest.raises(UsageError, match="task 2 cannot be planned"):
            repack([(0.0, 1.0, 10), wrong])
    with pytest.raises(UsageError, match="more time than can be counted"):
        repack([(-1.7e308, -1.6e308, 10), (1.6e308, 1.7e308, 10)])
    with pytest.raises(UsageError, match="more than 64 GPUs"):
        repack([(0.0, 1.0, 600)] * 65)
