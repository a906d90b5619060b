"""What holds for every simulation: nothing over capacity or on a failed device, no call lost, same seed same end."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict, replace
from random import Random
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dgsf.core.placement import Placer, Refusal, Request, make_policy
from dgsf.core.placement.consolidate import MoveRules
from dgsf.core.placement.model import NO_SLICE
from dgsf.core.policies import PLACEMENT_POLICIES
from dgsf.sim.engine import Simulator
from dgsf.sim.instance import Instance
from dgsf.sim.pools import parse_pool
from dgsf.sim.result import summarise
from dgsf.sim.rules import Rules
from dgsf.sim.warming import LOOK_S, Warming
from dgsf.sim.workload import FunctionSpec, Workload

functions = st.builds(
    FunctionSpec,
    name=st.uuids().map(str),
    types=st.sampled_from([("any",), ("any",), ("T4",), ("A100", "T4"), ("H100",)]),
    share=st.integers(1, 1000),
    devices=st.sampled_from([0, 0, 0, 1, 2]),
    cpu_milli=st.sampled_from([0, 0, 9000]),
    work_mib=st.sampled_from([0, 0, 9000, 50_000]),
    weights_mib=st.sampled_from([0.0, 500.0]),
    duty=st.floats(0, 1),
)
rules = st.builds(
    Rules,
    idle_s=st.sampled_from([0.0, 5.0, 60.0]),
    learned=st.booleans(),
    mtbf_h=st.sampled_from([0.0, 0.02]),
    mttr_s=st.just(20.0),
    interference=st.sampled_from([0.0, 0.1]),
    fair=st.booleans(),
    exclusive=st.booleans(),
    durations=st.booleans(),
    moves=st.sampled_from([None, MoveRules(1e6, copy_s=1.0, pause_s=0.5, least_saved_s=0.1, room_left=0, soon_s=1.5)]),
    seed=st.integers(0, 5),
)
policies = st.sampled_from(PLACEMENT_POLICIES)


@st.composite
def workloads(draw):
    kinds = draw(st.lists(functions, min_size=1, max_size=5))
    steps = draw(st.lists(st.tuples(st.floats(0, 20), st.integers(0, len(kinds) - 1), st.floats(0, 60)), max_size=40))
    arrivals = np.cumsum([gap for gap, _, _ in steps]).tolist()
    chosen = [function for _, function, _ in steps]
    return Workload("any", kinds, ["a", "b"], arrivals, chosen, [f % 2 for f in chosen], [run for _, _, run in steps])


class Watched(Simulator):
    """Looks at the pool whenever an instance starts a call, moves, or gives way."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)
        self.in_slices = 0  # calls that were started in one
        self._make_room = self.fleet.make_room
        self.fleet.make_room = self._watched_room

    def _start(self, item: Instance, call: int, load_s: float) -> None:
        pool = self.machine.pool
        assert (pool.left >= 0).all() and (pool.left <= 1000).all()
        for device in item.devices:
            row, column = pool.where[device]
            assert pool.usable[row, column]
        assert not item.dead
        assert (pool.memory >= 0).all() and (pool.memory <= pool.memory_size).all()
        tenant = self.workload.tenants[self.workload.tenant[call]]
        assert item.request.tenant == tenant
        if item.placement.owned_slice != NO_SLICE:
            self.in_slices += 1
            self._check_slice(item, tenant)
        super()._start(item, call, load_s)

    def _check_slice(self, item: Instance, tenant: str) -> None:
        """It is in a slice of its own tenant, which holds no more than its size; nothing is cut off twice."""
        place = item.row, item.placement.columns[0]
        slices = {owned.number: owned for owned in self.machine.pool.slices[place]}
        mine = slices[item.placement.owned_slice]
        inside = [
            each
            for each in self.fleet.idling.everything
            if each.placement.owned_slice == mine.number and each is not item
        ]
        assert mine.tenant == tenant and {each.request.tenant for each in inside} <= {tenant}
        assert mine.used == item.request.share + sum(each.request.share for each in inside) <= mine.share
        assert sum(owned.share for owned in slices.values()) == 1000 - self.machine.pool.left[place]

    def _watched_room(self, function: int, request: Request, refusal: Refusal, now: float) -> Instance | Refusal:
        pool = deepcopy(self.machine.pool)
        for item in self.fleet.idling.unused:
            pool.give_back(item.request, item.placement, item.ends_at)
        before = self.fleet.evicted
        found = self._make_room(function, request, refusal, now)
        possible = Placer(pool, make_policy(self.policy), Random(0)).place(request)  # with nothing idle there
        assert isinstance(found, Refusal) == isinstance(possible, Refusal)
        assert (self.fleet.evicted > before) == isinstance(found, Instance)
        return found

    def _move(self, item: Instance, *where: object) -> None:
        before = item.row, item.devices
        super()._move(item, *where)
        pool = self.machine.pool
        assert item.call >= 0 and (item.row, item.devices) != before
        assert (pool.left >= 0).all() and pool.usable[pool.where[item.devices[0]]]


def _is_never_placed(spec: FunctionSpec) -> bool:
    """On nodes of two T4 of 16 GiB, or of two A100 of 80."""
    no_room = spec.types == ("T4",) and spec.weights_mib + spec.work_mib > 16 * 1024
    return spec.types == ("H100",) or no_room


@settings(max_examples=80, deadline=None)
@given(workloads(), policies, rules)
def test_no_device_is_over_capacity_and_every_call_is_accounted_for(calls, policy, rules):
    run = Watched(calls, parse_pool("T4:2x2,A100:1x2"), policy, rules).run()
    found = summarise(run)
    ended = sum(done >= 0 for done in run.done_s)
    assert ended + run.refused + run.failures.lost == calls.calls
    wait = np.frombuffer(run.wait_s)
    assert np.isnan(wait).sum() == run.refused == sum(found.why_refused.values())
    assert (wait[~np.isnan(wait)] >= 0).all() and found.wait_max_s == max(wait[~np.isnan(wait)], default=0)
    never = sum(_is_never_placed(calls.functions[function]) for function in calls.function)
    assert sum(n for why, n in found.why_refused.items() if not why.startswith("waited to the end")) == never
    assert 0 <= found.allocation <= found.peak_allocation + 1e-9 <= 1 + 1e-9
    assert 0 <= found.fragmentation <= 1 and found.fairness <= 1 + 1e-9
    if not rules.mtbf_h:  # with failures, some of the time is lost
        assert found.lost_gpu_hours == 0 and found.retried == 0
    assert found.busy_gpu_hours <= found.gpu_hours * (1 + 1e-9), "calls run only on devices that are held, in parts"


@settings(max_examples=40, deadline=None)
@given(workloads(), st.sampled_from(["conspirator", "dgsf_slices"]), rules)
def test_slices_stay_their_tenants_own(calls, policy, rules):
    run = Watched(calls, parse_pool("T4:2x2,A100:1x2"), policy, replace(rules, exclusive=False)).run()
    parts = [spec.share < 1000 and not spec.devices and not _is_never_placed(spec) for spec in calls.functions]
    assert run.in_slices >= run.workload.calls - run.refused - sum(not parts[function] for function in calls.function)


@settings(max_examples=25, deadline=None)
@given(workloads(), policies, rules)
def test_the_same_seed_gives_the_same_result_bit_for_bit(calls, policy, rules):
    once, again = (summarise(Simulator(calls, parse_pool("T4:2x2,A100:1x2"), policy, rules).run()) for _ in range(2))
    assert asdict(once) == asdict(again)


@settings(max_examples=40, deadline=None)
@given(workloads(), policies, rules, st.sampled_from(["T4:1x1", "T4:2x2,A100:1x2"]))
def test_learned_keep_warm_decides_the_same_without_the_looks_that_are_left_out(calls, policy, rules, pool):
    learned = replace(rules, learned=True)
    skipped = summarise(Simulator(calls, parse_pool(pool), policy, learned).run())
    with patch.object(Warming, "next_look_s", lambda *_: LOOK_S):
        every = summarise(Simulator(calls, parse_pool(pool), policy, learned).run())
    assert asdict(skipped) == asdict(every)


@settings(max_examples=25, deadline=None)
@given(workloads(), policies, rules)
def test_everything_is_given_back_when_nothing_stays_warm(calls, policy, rules):
    run = Simulator(calls, parse_pool("T4:2x2"), policy, replace(rules, idle_s=0.0, learned=False)).run()
    assert run.machine.booked == run.machine.held == 0
    assert (run.machine.pool.left[run.machine.pool.ids >= 0] == 1000).all()
