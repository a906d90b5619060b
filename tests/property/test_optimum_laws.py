"""What the solver proves is what trying everything finds, slices too: they are gone once none of their tasks runs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgsf.core.placement.plan import time_in_use
from dgsf.sim.optimum import GpuKind, best_cost, best_hours
from dgsf.sim.tenants import Task

FRACTIONS = (14, 28, 42, 57, 100)
# starts and ends often fall together: a slice that ends when a task comes is gone
TASKS = st.lists(
    st.builds(
        Task,
        st.sampled_from("ab"),
        st.integers(0, 3).map(float),
        st.integers(1, 3).map(float),
        st.sampled_from([10, 20, 40, 57]),
    ),
    min_size=1,
    max_size=5,
).map(lambda tasks: sorted(tasks, key=lambda task: task.arrival_s))


@settings(max_examples=30, deadline=None)
@given(tasks=TASKS)
def test_the_optimum_with_slices_is_what_trying_everything_finds(tasks):
    pytest.importorskip("ortools")
    gpus = len(tasks)
    found = best_hours(tasks, 60.0, gpus, FRACTIONS)
    assert found.proved
    assert found.gpu_hours * 3600 == pytest.approx(least_cost(tasks, [GpuKind("gpu", gpus)]))


@settings(max_examples=20, deadline=None)
@given(tasks=TASKS.map(lambda tasks: tasks[:4]))
def test_so_it_is_on_several_kinds_where_tasks_end_sooner_or_later(tasks):
    pytest.importorskip("ortools")
    kinds = [GpuKind("slow", len(tasks), 1.0, 1.0), GpuKind("fast", 2, 1.7, 2.0)]
    found = best_cost(tasks, kinds, 60.0, FRACTIONS)
    assert found.proved
    assert found.cost * 3600 == pytest.approx(least_cost(tasks, kinds))


def test_a_slice_whose_tasks_have_all_ended_is_joined_by_nobody():
    """Five slices of 14 and one of 42 are more than a GPU; five tasks in the slice of 57 that was there would fit."""
    pytest.importorskip("ortools")
    for gap in (0.0, 5.0):
        later = [Task("a", 10.0 + gap, 100.0, 10)] * 5
        tasks = [Task("a", 0.0, 10.0, 57), *later, Task("b", 10.0 + gap, 100.0, 42)]
        assert best_hours(tasks, 60.0, 4, FRACTIONS).gpu_hours * 3600 == pytest.approx(10 + 200)
    kept = [Task("a", 0.0, 10.0, 50), Task("a", 5.0, 20.0, 5)]  # one still runs when the others come
    found = best_hours([*kept, *tasks[1:]], 60.0, 4, FRACTIONS)
    assert found.gpu_hours * 3600 == pytest.approx(15 + 100)


def least_cost(tasks, kinds):
    """Each task in turn into every slice of its tenant that is there, and into a new one on every GPU."""
    gpus = [kind for kind in kinds for _ in range(kind.count)]
    return min(_costs(tasks, gpus, [], 0))


def _costs(tasks, gpus, slices, number):
    if number == len(tasks):
        yield sum(_price(tasks, kind, [s for s in slices if s[0] == gpu]) for gpu, kind in enumerate(gpus))
        return
    task = tasks[number]
    for place, (gpu, size, members) in enumerate(slices):
        running = _running(tasks, gpus[gpu], members, task.arrival_s)
        room = size - sum(tasks[member].percent for member in running)
        if running and tasks[members[0]].tenant == task.tenant and room >= task.percent:
            joined = (gpu, size, [*members, number])
            yield from _costs(tasks, gpus, [*slices[:place], joined, *slices[place + 1 :]], number + 1)
    size = next(size for size in FRACTIONS if size >= task.percent)
    for gpu, kind in enumerate(gpus):  # an unused one more of a kind is like the one before it
        if gpu and gpus[gpu - 1] == kind and all(s[0] != gpu - 1 for s in slices):
            continue
        here = [s for s in slices if s[0] == gpu]
        taken = sum(held for _, held, members in here if _running(tasks, kind, members, task.arrival_s))
        if taken + size <= 100:
            yield from _costs(tasks, gpus, [*slices, (gpu, size, [number])], number + 1)


def _running(tasks, kind, members, now):
    return [member for member in members if tasks[member].arrival_s + tasks[member].duration_s / kind.speed > now]


def _price(tasks, kind, slices):
    held = [tasks[member] for _, _, members in slices for member in members]
    spans = [(task.arrival_s, task.arrival_s + task.duration_s / kind.speed, 1) for task in held]
    return kind.price_per_h * time_in_use(spans, [0] * len(spans))
