"""Who goes first when calls of a simulation wait: by age, or by the device time of their tenants."""

from __future__ import annotations

from random import Random

import pytest
from simulated import INSTANT, workload

from dgsf.sim.agenda import FAIL
from dgsf.sim.engine import Simulator
from dgsf.sim.fairness import UNKNOWN_S, FairClock
from dgsf.sim.pools import parse_pool
from dgsf.sim.rules import Rules
from dgsf.sim.waiting import Waiting
from dgsf.sim.workload import FunctionSpec, Workload


def served(calls: Workload, pool: str = "T4:1", **rules: float) -> Simulator:
    return Simulator(calls, parse_pool(pool), "first_fit", Rules(**{**INSTANT, **rules})).run()


def starts(run: Simulator, function: int) -> list[int]:
    calls = [call for call, called in enumerate(run.workload.function) if called == function]
    return [round(run.workload.arrival_s[call] + run.wait_s[call]) for call in calls]


# --- first come, first served -----------------------------------------------------------------
@pytest.mark.parametrize("idle_s", [0.0, 60.0])
def test_an_older_call_of_another_function_goes_before_a_warm_instances_next_call(idle_s):
    calls = workload((0, 0, 10), (1, 1, 10), (2, 0, 10), (3, 0, 10), (4, 0, 10), tenants=2)
    run = served(calls, fair=False, idle_s=idle_s)
    assert (starts(run, 0), starts(run, 1)) == ([0, 20, 30, 40], [10])


def test_room_that_becomes_free_at_once_goes_to_the_oldest_calls_of_all_functions():
    kinds = [FunctionSpec("all"), FunctionSpec("a", share=100), FunctionSpec("b", share=100)]
    calls = [(0.0, 0, 10.0), *((1 + number / 100, 1 + number % 2, 10.0) for number in range(40))]
    run = served(workload(*calls, functions=kinds), fair=False, idle_s=0.0)
    assert starts(run, 1) == starts(run, 2) == [at for at in (10, 20, 30, 40) for _ in range(5)]


def test_a_call_that_is_tried_again_is_as_old_as_before():
    """Both devices fail one after the other; the calls that ran there go before one that came later."""
    calls = workload((0, 0, 100), (0, 1, 100), (5, 2, 10))
    run = Simulator(calls, parse_pool("T4:2"), "first_fit", Rules(**INSTANT, fair=False, mtbf_h=1e6, mttr_s=50.0))
    run.agenda.add(10.0, FAIL, 0)
    run.agenda.add(20.0, FAIL, 1)
    run.run()
    assert run.wait_s[0] < run.wait_s[1] < run.wait_s[2]


def test_what_is_older_but_does_not_fit_keeps_nobody_waiting():
    kinds = [FunctionSpec("half", share=500), FunctionSpec("pair", share=0, devices=1)]
    calls = workload((0, 0, 100), (0, 0, 10), (1, 1, 10), (2, 0, 10), functions=kinds)
    for idle_s in (0.0, 60.0):
        assert starts(served(calls, fair=False, idle_s=idle_s), 0) == [0, 0, 10]


def test_every_waiting_function_with_room_starts_however_many_wait_before_it():
    """Twenty wait for a whole device; the last wants a part of one, and half a device becomes free."""
    kinds = [FunctionSpec("half", share=500), FunctionSpec("other", share=500)]
    kinds += [FunctionSpec(f"whole{n}", share=1000 - n) for n in range(20)] + [FunctionSpec("small", share=500)]
    calls = [(0.0, 0, 10.0), (0.0, 1, 100.0), *((1.0, 2 + n, 1.0) for n in range(20)), (2.0, 22, 5.0)]
    for fair in (True, False):
        run = Simulator(
            workload(*calls, functions=kinds), parse_pool("T4:1"), "best_fit", Rules(**INSTANT, idle_s=0.0, fair=fair)
        )
        assert run.run().wait_s[22] == pytest.approx(8.0)


# --- fairness ---------------------------------------------------------------------------------
def test_room_that_becomes_free_at_once_is_divided_between_tenants():
    """All calls of one tenant came before those of the other."""
    kinds = [FunctionSpec("all", share=0, devices=8), FunctionSpec("a", share=100), FunctionSpec("b", share=100)]
    calls = [(0.0, 0, 10.0), *((1.0, 1, 100.0) for _ in range(160)), *((2.0, 2, 100.0) for _ in range(160))]
    run = served(workload(*calls, functions=kinds, tenants=3), "T4:1x8", idle_s=0.0)
    for function in (1, 2):
        assert [starts(run, function).count(at) for at in (10, 110, 210, 310)] == [40] * 4


def test_a_tenant_with_one_call_does_not_wait_behind_all_calls_of_another():
    flood = workload(*[(0.0, 0, 10.0)] * 20, (1.0, 1, 10.0), tenants=2)
    assert served(flood, quantum_s=0.0).wait_s[20] == pytest.approx(9)
    assert served(flood, fair=False).wait_s[20] > 100


def test_a_call_is_charged_what_its_function_takes_and_put_right_at_the_end():
    clock = FairClock(2, 2)
    assert clock.starts(0, 0, 0.5) == 0.5 * UNKNOWN_S
    clock.took(0, 10.0)
    assert clock.stops(0, 0.5, 5.0) is False
    assert clock.clock == [5.0, 0.0]
    assert clock.starts(0, 0, 0.5) == 5.0
    clock.took(0, 30.0)
    assert clock.starts(1, 1, 1.0) == 20.0, "of a function that nothing is known of, what all take"
    assert clock.stops(0, 5.0, 1.0) is True
    assert clock.clock == [6.0, 20.0]


def test_time_not_waited_for_is_not_saved_up():
    clock = FairClock(2, 1)
    clock.comes(0)
    clock.stops(0, clock.starts(0, 0, 1.0), 100.0)
    clock.comes(0)
    clock.starts(0, 0, 1.0)
    clock.comes(1)
    assert clock.clock[1] == 100.0


def test_a_tenant_that_waits_keeps_its_place():
    clock = FairClock(2, 1)
    clock.waits(1, 1)
    clock.stops(0, clock.starts(0, 0, 1.0), 100.0)
    clock.starts(0, 0, 1.0)
    clock.comes(1)
    assert clock.clock[1] == 0.0


# --- the lines --------------------------------------------------------------------------------
def test_lines_say_who_is_next_as_a_search_through_all_would():
    random = Random(3)
    tenants, shapes = [number % 3 for number in range(12)], [number % 4 for number in range(12)]
    functions = [random.randrange(12) for _ in range(600)]
    clock = [0.0, 0.0, 0.0]
    waiting, there, idle = Waiting(functions, shapes, tenants, clock), set(), list(range(600))
    for _ in range(3000):
        step = random.randrange(4)
        if step == 0 and idle:
            call = idle.pop(random.randrange(len(idle)))
            waiting.add(call)
            there.add(call)
        elif step == 1 and there:
            function = functions[random.choice(sorted(there))]
            call = waiting.take(function)
            assert call == min(each for each in there if functions[each] == function)
            there.remove(call)
            idle.append(call)
        elif step == 2:
            clock[random.randrange(3)] += random.random()
        else:
            tenant = random.randrange(3)
            clock[tenant] -= random.random()
            waiting.lowered(tenant)
        for shape in range(4):
            turns = [
                (clock[tenants[functions[call]]], call, tenants[functions[call]])
                for call in there
                if shapes[functions[call]] == shape
            ]
            assert waiting.first(shape) == min(turns, default=None)
        assert waiting.count == len(there)


@pytest.mark.parametrize("fair", [True, False])
def test_tasks_that_wait_cost_the_same_however_many_others_wait(fair):
    """Each is a function of its own, of one of seven shapes."""

    def looked_at(tasks: int) -> int:
        kinds = [FunctionSpec(f"f{number}", share=250 + 50 * (number % 7)) for number in range(tasks)]
        calls = workload(*((0.001 * number, number, 10.0) for number in range(tasks)), functions=kinds, tenants=2)
        run = Simulator(calls, parse_pool("T4:4"), "first_fit", Rules(fair=fair, idle_s=0.0))
        was_refused, looks = run.fleet.was_refused, []
        run.fleet.was_refused = lambda function: looks.append(function) or was_refused(function)
        run.run()
        return len(looks)

    assert looked_at(600) < 2.5 * looked_at(300)


# --- what waiting is --------------------------------------------------------------------------
def test_time_in_which_a_call_ran_in_vain_is_not_queueing_delay():
    run = Simulator(workload((0, 0, 100)), parse_pool("T4:2"), "first_fit", Rules(**INSTANT, mtbf_h=1e6, idle_s=0.0))
    run.agenda.add(99.0, FAIL, 0)
    run.run()
    assert (run.wait_s[0], run.done_s[0], run.failures.retried) == (0, 199, 1)


def test_what_a_call_waited_each_time_adds_up():
    calls = workload((0, 0, 10), (4, 1, 100))
    run = Simulator(calls, parse_pool("T4:1"), "first_fit", Rules(**INSTANT, mtbf_h=1e6, mttr_s=50.0))
    run.agenda.add(60.0, FAIL, 0)
    run.run()
    down_s = run.done_s[1] - 6 - 50 - 100
    assert down_s > 0 and run.wait_s[1] == pytest.approx(6 + down_s)


def test_who_comes_later_does_not_wait_for_what_was_only_guessed():
    clocks = FairClock(tenants=2, functions=1)
    clocks.comes(0)
    charged = [clocks.starts(0, 0, devices=1.0) for _ in range(100)]
    for each in charged:
        clocks.stops(0, each, used=0.01)
    clocks.comes(1)
    assert clocks.clock[1] <= clocks.clock[0] + 1e-9
