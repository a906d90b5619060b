"""Keep-warm in simulations: who is kept, started ahead or given up, and on what budget."""

from __future__ import annotations

from functools import partialmethod

import pytest
from simulated import INSTANT, simulate, workload

from dgsf.errors import UsageError
from dgsf.sim.engine import Simulator
from dgsf.sim.machine import Machine
from dgsf.sim.pools import parse_pool
from dgsf.sim.rules import Rules
from dgsf.sim.synthetic import Synthetic, draw
from dgsf.sim.warming import LOOK_S, Warming
from dgsf.sim.workload import FunctionSpec, Workload


def regular(calls: int = 120) -> Workload:
    """Every ten minutes, and a load takes ten seconds."""
    heavy = [FunctionSpec("f", share=250, weights_mib=12_000.0)]
    return workload(*((600.0 * at, 0, 5.0) for at in range(calls)), functions=heavy)


def test_learned_keep_warm_starts_a_regular_function_ahead_of_its_next_call():
    fixed = simulate(regular(), idle_s=60.0)
    learned = simulate(regular(), idle_s=60.0, learned=True)
    assert fixed.cold_starts == 120 and fixed.ahead == 0
    assert learned.cold_starts < 0.2 * fixed.cold_starts
    assert learned.ahead > 90
    assert learned.gpu_hours <= fixed.gpu_hours + 4000 / 3600  # what it has to begin with


def test_a_call_that_finds_its_instance_loading_waits_for_the_rest_and_is_a_cold_start():
    run = Simulator(regular(2), parse_pool("T4:1"), "best_fit", Rules(learned=True, start_s=0.0))
    run.keeping.start_ahead((0, None, None), 597.0)
    run.now = 600.0
    run._arrive(1)
    assert (run.cold, run.keeping.ahead, run._running) == (1, 1, 1)
    assert next(event for event in run.agenda.events if event[2] == 0)[0] == pytest.approx(597 + 10 + 5)


def test_learned_keep_warm_gives_up_whom_nobody_expects_rather_than_the_least_recently_used():
    kinds = [FunctionSpec(name, share=500) for name in ("often", "once", "new")]
    calls = [(20.0 * at, 0, 1.0) for at in range(100)] + [(1985.0, 1, 1.0), (1990.0, 2, 1.0), (2000.0, 0, 1.0)]
    kept = simulate(workload(*calls, functions=kinds), idle_s=600.0, learned=True)
    fixed = simulate(workload(*calls, functions=kinds), idle_s=600.0)
    assert (kept.evicted, kept.cold_starts) == (1, 3)
    assert (fixed.evicted, fixed.cold_starts) == (2, 4)


HALVES = [FunctionSpec(name, share=500) for name in ("a", "b", "new")]
BESIDE = [(0.0, 0, 1.0), (1.0, 1, 1.0), (30.0, 2, 1.0)]  # a and b fill one device; new would open another


def test_learned_keep_warm_gives_an_idle_instance_up_rather_than_open_another_device():
    fixed = simulate(workload(*BESIDE, functions=HALVES), "T4:2x1", idle_s=600.0)
    learned = simulate(workload(*BESIDE, functions=HALVES), "T4:2x1", idle_s=600.0, learned=True)
    assert (fixed.evicted, fixed.peak_allocation) == (0, 0.75)
    assert (learned.evicted, learned.peak_allocation, learned.cold_starts) == (1, 0.5, 3)


@pytest.mark.parametrize(
    ("new", "calls"),
    [
        (FunctionSpec("new", share=800), BESIDE),  # one idle instance less is not enough
        (FunctionSpec("new", share=500, work_mib=16_000), BESIDE),  # nor is the memory that one holds
        (FunctionSpec("new", share=500, types=("A100", "T4")), BESIDE),  # the idle ones are on the type that is second
        (FunctionSpec("new", share=500), [*BESIDE[:2], (1.5, 2, 1.0), (1.9, 2, 1.0)]),  # nobody is idle
    ],
)
def test_nobody_is_given_up_where_another_device_must_be_opened(new, calls):
    heavy = [FunctionSpec(name, share=500, types=("T4",), work_mib=8_000) for name in ("a", "b")]
    kinds = [*(heavy if new.work_mib else HALVES[:2]), new]
    found = simulate(workload(*calls, functions=kinds), "T4:1,A100:1", "first_fit", idle_s=600.0, learned=True)
    assert found.evicted == 0 and found.refused == 0


@pytest.mark.parametrize(("at", "given_up"), [(1.9, 0), (2.0, 1)])
def test_a_function_with_workers_takes_only_the_place_of_one_that_was_idle_for_a_second(at, given_up):
    """As in production: a burst does not displace those whose calls have just ended."""
    calls = workload((0.0, 0, 1.0), (0.0, 2, 100.0), (at, 2, 1.0), functions=HALVES)
    run = Simulator(calls, parse_pool("T4:2x1"), "best_fit", Rules(**INSTANT, learned=True))
    run.keeping.warming.victim = lambda items, able, now: able[0]  # whoever may go
    assert run.run().fleet.evicted == given_up


def test_on_a_pool_that_is_full_in_bursts_learned_keep_warm_takes_no_more_than_the_fixed_time_would(monkeypatch):
    monkeypatch.setattr("dgsf.core.warmth.LENT_S", 0.0)
    wanted = Synthetic(calls=3_000, rate_per_s=6, functions=20, shares=(100, 250, 500), burst=8, burst_s=20)
    fixed = simulate(draw(wanted), pool="T4:8", policy="dgsf", idle_s=60.0)
    learned = simulate(draw(wanted), pool="T4:8", policy="dgsf", idle_s=60.0, learned=True)
    assert fixed.evicted > 500, "idle instances are displaced all the time"
    assert learned.gpu_hours <= 1.02 * fixed.gpu_hours


@pytest.mark.parametrize("pool", ["T4:4", "T4:2,A100:2"])
def test_the_budget_of_learned_keep_warm_is_what_the_fixed_time_takes_on_the_same_full_pool(pool):
    wanted = Synthetic(calls=2_000, rate_per_s=3, functions=20, shares=(100, 500), burst=8, burst_s=20)
    run = Simulator(draw(wanted), parse_pool(pool), "dgsf", Rules(learned=True)).run()
    budget = run._warming._warmth._shadow.resident_s / 3600
    fixed = simulate(draw(wanted), pool=pool, policy="dgsf", start_s=0.01)
    assert budget == pytest.approx(fixed.gpu_hours, rel=0.05)


def test_the_budget_of_learned_keep_warm_knows_instances_that_join_a_slice():
    calls = workload((0, 0, 0), (0, 0, 0), (0, 0, 0), (0, 0, 1), functions=[FunctionSpec("f", share=1)])
    found = simulate(calls, "T4:2x2", "conspirator", start_s=Rules().start_s, idle_s=0.0, learned=True)
    assert found.calls == 4 and found.refused == 0


def test_a_failed_device_is_no_room_for_what_the_fixed_time_would_keep():
    machine = Machine(parse_pool("T4:2,A100:1"), "best_fit", 0)
    machine.set_health(0, False)
    assert machine.healthy == {"T4": 1, "A100": 1}
    machine.set_health(0, True)
    assert machine.healthy == {"T4": 2, "A100": 1}


def whole(calls: int, rate_per_s: float, run_s: float) -> Workload:
    """Each call takes a whole device: where they wait, all devices are full."""
    return draw(Synthetic(calls=calls, rate_per_s=rate_per_s, functions=12, shares=(1000,), mean_run_s=run_s))


def test_looks_that_would_say_nothing_are_left_out_and_nothing_else_changes(monkeypatch):
    drawn = [draw(Synthetic(calls=300, rate_per_s=rate, functions=12, shares=(250, 500))) for rate in (0.02, 2.0)]
    for calls in (regular(40), whole(60, 0.01, 300.0), *drawn):
        looks = [0, 0]
        plain = Warming.look

        def counted(self, *told, way=0, plain=plain, looks=looks, **more):
            looks[way] += 1
            return plain(self, *told, **more)

        found = []
        for way, patched in enumerate(({}, {"next_look_s": lambda *_: LOOK_S})):
            with monkeypatch.context() as patch:
                patch.setattr(Warming, "look", partialmethod(counted, way=way))
                for name, value in patched.items():
                    patch.setattr(Warming, name, value)
                found.append(simulate(calls, pool="T4:2", learned=True, idle_s=60.0))
        assert found[0] == found[1]
        assert looks[0] < looks[1] / 2 or calls is drawn[1], "where calls are rare, there is little to ask"


@pytest.mark.parametrize(
    ("calls", "rules"),
    [
        (whole(40, 1e-6, 1e6), {}),  # months of waiting before full devices
        (whole(40, 20.0, 2.0), {"mtbf_h": 0.01, "mttr_s": 1e9}),  # years before a repair
    ],
)
def test_learned_keep_warm_is_not_asked_while_calls_wait_and_nothing_can_change(monkeypatch, calls, rules):
    monkeypatch.setattr("dgsf.sim.keeping.MOST_LOOKS", 100_000)
    found = simulate(calls, pool="T4:1", learned=True, **rules)
    assert found.wait_mean_s > 1e5 and found.refused == 0


def test_learned_keep_warm_that_is_asked_for_ever_says_so(monkeypatch):
    monkeypatch.setattr("dgsf.sim.keeping.MOST_LOOKS", 100)
    with pytest.raises(UsageError, match=r"it was asked 100 times, and the calls have come to no end after .* --run-s"):
        simulate(regular(), learned=True)
