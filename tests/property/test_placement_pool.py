"""Whatever arrives, leaves or fails: no device over capacity, nothing on an unhealthy one, slices stay exclusive."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgsf.core.placement import DeviceView, NodeView, Placement, Placer, Pool, Request, make_policy
from dgsf.core.placement.holdings import Slicing
from dgsf.core.placement.plan import plan
from dgsf.core.policies import PLACEMENT_POLICIES

GIB = 1024**3
requests = st.builds(
    Request,
    types=st.sampled_from([("any",), ("A",), ("B", "A"), ("A|B",)]),
    memory_bytes=st.sampled_from([0, GIB]),
    tenant=st.sampled_from(["t", "u", "v"]),
    function=st.sampled_from(["f", "g"]),
    share=st.sampled_from([None, 0, 50, 140, 300, 470, 810, 1000]),
    devices=st.sampled_from([0, 0, 0, 1, 2]),
    cpu_milli=st.sampled_from([0, 1000, 4000]),
    host_memory=st.sampled_from([0, GIB]),
    duration_s=st.sampled_from([0.0, 10.0, 100.0]),
)
steps = st.lists(
    st.one_of(
        requests,
        st.tuples(st.just("leave"), st.integers(0, 30)),
        st.tuples(st.just("health"), st.integers(0, 7), st.booleans()),
    ),
    max_size=40,
)


def make_pool():
    devices = [
        DeviceView(number, "AB"[number // 4], "cuda", True, 4, 4 * GIB, 4, 4 * GIB, node=f"n{number // 2}")
        for number in range(8)
    ]
    return Pool.of(devices, [NodeView(f"n{number}", 16_000, 4 * GIB) for number in range(4)])


class World:
    """A pool, who is on it, and what must always hold."""

    def __init__(self, name):
        self.pool = make_pool()
        self.placer = Placer(self.pool, make_policy(name), Random(3))
        self.running = []
        self.unhealthy = set()

    def arrive(self, request):
        self.pool.now += 1.0
        ends = self.pool.now + request.duration_s if request.duration_s else 0.0
        answer = self.placer.place(request)
        if isinstance(answer, Placement):
            assert not self.unhealthy & set(answer.devices)
            self.running.append((request, self.pool.take(request, answer, ends), ends))

    def leave(self, number):
        if self.running:
            self.pool.give_back(*self.running.pop(number % len(self.running)))

    def health(self, device, healthy):
        (self.unhealthy.discard if healthy else self.unhealthy.add)(device)
        self.pool.set_health(device, healthy)

    def check(self):
        pool = self.pool
        assert (pool.left >= 0).all() and (pool.left <= 1000).all()
        assert (pool.memory >= 0).all() and (pool.cpu >= 0).all() and (pool.host_memory >= 0).all()
        for device in range(8):
            place = pool.where[device]
            on_it = [(request, where) for request, where, _ in self.running if device in where.devices]
            assert pool.tasks[place] == len(on_it)
            assert pool.memory[place] == 4 * GIB - sum(request.memory_bytes for request, _ in on_it)
            self.check_slices(device, on_it)

    def check_slices(self, device, on_it):
        owned = self.pool.slices_of(device)
        plain = sum(where.share for _, where in on_it if where.owned_slice == -1)
        assert self.pool.left[self.pool.where[device]] == 1000 - plain - sum(part.share for part in owned)
        for part in self.pool.slices.get(self.pool.where[device], ()):
            members = [request for request, where in on_it if where.owned_slice == part.number]
            assert members and {request.tenant for request in members} == {part.tenant}
            assert sum(request.share for request in members) == part.used <= part.share


@pytest.mark.parametrize("name", PLACEMENT_POLICIES)
@settings(max_examples=25, deadline=None)
@given(steps=steps)
def test_nothing_is_over_capacity_or_on_unhealthy_devices_and_slices_are_exclusive(name, steps):
    world = World(name)
    for step in steps:
        if isinstance(step, Request):
            world.arrive(step)
        else:
            getattr(world, step[0])(*step[1:])
        world.check()
    while world.running:
        world.leave(0)
    world.check()
    assert (world.pool.left == 1000).all() and (world.pool.until == 0).all()


@pytest.mark.parametrize("name", ["best_fit", "gpu_packing", "gpu_clustering", "dot_product", "gavel"])
@settings(max_examples=25, deadline=None)
@given(steps=steps)
def test_kept_scores_answer_as_fresh_ones_do(name, steps):
    world = World(name)
    for step in steps:
        if isinstance(step, Request):
            fresh = Placer(world.pool, make_policy(name), Random(3)).place(step)
            assert world.placer.place(step) == fresh
            world.arrive(step)
        else:
            getattr(world, step[0])(*step[1:])


@settings(max_examples=50, deadline=None)
@given(
    tasks=st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 30), st.integers(1, 1000)).map(
            lambda t: (t[0], t[0] + t[1], t[2])
        ),
        max_size=25,
    ),
    large=st.sampled_from((1, 8, 250)),
)
def test_a_plan_never_overfills_a_gpu_and_counts_its_cost_right(tasks, large):
    gpus, cost = plan(tasks, width=4, large=large)
    paid = 0
    for time in range(100):
        load = {}
        for (start, end, share), gpu in zip(tasks, gpus, strict=True):
            if start <= time < end:
                load[gpu] = load.get(gpu, 0) + share
        assert all(share <= 1000 for share in load.values())
        paid += len(load)
    assert cost == pytest.approx(paid)


@settings(max_examples=50, deadline=None)
@given(
    tasks=st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 30), st.integers(1, 1000), st.sampled_from("abc")), max_size=25
    ),
    large=st.sampled_from((1, 8, 250)),
)
def test_a_plan_in_slices_repeats_and_is_never_better_than_its_tasks_alone_need(tasks, large):
    intervals = [(start, start + length, share) for start, length, share, _ in tasks]
    sizes = [next(size for size in (140, 280, 420, 570, 1000) if size >= share) for _, _, share, _ in tasks]
    slicing = Slicing([owner for *_, owner in tasks], sizes)
    gpus, cost = plan(intervals, slicing, 4, large)
    assert (gpus, cost) == plan(intervals, slicing, 4, large)
    paid = 0
    for time in range(100):
        shares, owners = {}, {}
        for (start, end, share), gpu, owner in zip(intervals, gpus, slicing.owners, strict=True):
            if start <= time < end:
                shares[gpu] = shares.get(gpu, 0) + share
                owners.setdefault(gpu, {}).setdefault(owner, []).append(share)
        assert all(share <= 1000 for share in shares.values())
        assert all(sum(_least_slice(held) for held in by.values()) <= 1000 for by in owners.values())
        paid += len(shares)
    assert cost == pytest.approx(paid)


def _least_slice(shares):
    """No slices of one owner that hold these shares are together smaller than this."""
    return max(sum(shares), next(size for size in (140, 280, 420, 570, 1000) if size >= max(shares)))
