"""The simulator on small cases that can be worked out by hand."""

from __future__ import annotations

from random import Random

import pytest
from simulated import INSTANT, simulate, workload

from dgsf.core.perfmodel import Command, Link, Recording
from dgsf.core.placement import Refusal
from dgsf.sim.engine import Simulator
from dgsf.sim.experiment import Experiment, run_experiment, sharing_against_exclusive
from dgsf.sim.machine import Machine, request_of
from dgsf.sim.pools import parse_pool, read_pool
from dgsf.sim.remoted import Remoted
from dgsf.sim.result import jain, summarise
from dgsf.sim.rules import Rules
from dgsf.sim.synthetic import Synthetic, draw
from dgsf.sim.workload import FunctionSpec, Workload

NEVER = FunctionSpec("never", types=("H100",))  # no pool here has one


def test_a_call_waits_for_the_one_device_and_finds_it_warm():
    found = simulate(workload((0, 0, 10), (1, 0, 10), (100, 0, 1)), idle_s=200.0)
    assert found.cold_starts == 1
    assert found.wait_max_s == pytest.approx(9)
    assert found.done_mean_s == pytest.approx((10 + 19 + 1) / 3)
    assert found.gpu_hours == pytest.approx(101 / 3600)
    assert found.busy_gpu_hours == pytest.approx(21 / 3600)


def test_an_idle_instance_goes_after_its_time():
    found = simulate(workload((0, 0, 10), (100, 0, 1)), idle_s=50.0)
    assert found.cold_starts == 2
    assert found.gpu_hours == pytest.approx(61 / 3600)
    assert found.cost == pytest.approx(0.35 * 61 / 3600)


def test_what_stays_warm_after_the_last_call_is_told_apart():
    kinds = [FunctionSpec("long", share=500), FunctionSpec("short", share=500)]
    calls = workload((0, 0, 10), (5, 1, 1), functions=kinds)
    for learned in (False, True):
        found = simulate(calls, idle_s=50.0, learned=learned)
        assert (found.gpu_hours, found.after_gpu_hours) == (pytest.approx(10 / 3600), pytest.approx(50 / 3600))
    assert simulate(calls, idle_s=0.0).after_gpu_hours == 0


def test_an_idle_instance_gives_way_to_another_function():
    found = simulate(workload((0, 0, 10), (20, 1, 5)), idle_s=1000.0)
    assert (found.evicted, found.cold_starts, found.wait_max_s) == (1, 2, 0)


SMALL = [FunctionSpec(f"s{index}", share=50) for index in range(20)]


def test_however_many_small_idle_instances_give_way_to_a_whole_device():
    calls = [(0.0, index, 1.0) for index in range(20)] + [(5.0, 20, 1.0)]
    found = simulate(workload(*calls, functions=[*SMALL, FunctionSpec("big")]))
    assert (found.refused, found.wait_max_s, found.evicted) == (0, 0, 20)


def test_nothing_is_given_up_where_that_makes_no_room():
    kinds = [
        FunctionSpec("long", types=("A100",)),
        FunctionSpec("w", types=("T4",)),
        FunctionSpec("b", types=("A100",)),
    ]
    run = Simulator(
        workload((0, 0, 1000), (0, 1, 1), (5, 2, 1), (900, 1, 1), functions=kinds),
        parse_pool("A100:1,T4:1"),
        "first_fit",
        Rules(idle_s=3600.0, start_s=0.0),
    ).run()
    assert run.cold == 3  # the T4's instance was there for its second call
    assert run.fleet.evicted == 1  # the A100's own, when its call had ended


def test_no_more_is_given_up_than_it_takes_and_what_was_used_longest_ago_first():
    kinds = [FunctionSpec(name, share=share) for name, share in (("a", 100), ("b", 400), ("c", 500), ("d", 450))]
    calls = workload((0, 0, 1), (1, 1, 1), (2, 2, 1), (10, 3, 1), (20, 2, 1), functions=kinds)
    run = Simulator(calls, parse_pool("T4:1"), "best_fit", Rules(idle_s=3600.0, start_s=0.0)).run()
    assert run.fleet.evicted == 2  # a and b for d; c stays
    assert run.cold == 4


def test_processors_that_idle_instances_hold_are_given_up_too():
    kinds = [FunctionSpec("a", share=100, cpu_milli=3000), FunctionSpec("b", share=0, cpu_milli=2000)]
    found = simulate(workload((0, 0, 1), (5, 1, 1), functions=kinds), "T4:1x1@4", idle_s=600.0)
    assert (found.evicted, found.wait_max_s, found.refused) == (1, 0, 0)


def test_a_tenants_slice_makes_room_only_when_its_last_task_may_go():
    kinds = [FunctionSpec(name, share=share) for name, share in (("a", 500), ("b", 50), ("c", 1000))]
    calls = workload((0, 0, 100), (1, 1, 1), (5, 2, 1), functions=kinds)
    found = simulate(calls, policy="conspirator", idle_s=600.0)
    assert found.wait_max_s == pytest.approx(95)  # b alone does not help: it stays until a has ended
    assert found.evicted == 2


def test_what_waits_is_served_when_an_idle_instance_goes():
    kinds = [FunctionSpec("long"), FunctionSpec("short"), FunctionSpec("next")]
    calls = workload((0, 0, 1000), (0, 1, 1), (5, 2, 1), functions=kinds)
    run = Simulator(calls, parse_pool("T4:2"), "first_fit", Rules(idle_s=60.0, start_s=0.0))
    run.fleet.make_room = lambda function, request, refusal, now: refusal  # idle instances never give way
    run.run()
    assert run.refused == 0
    assert run.wait_s[2] == pytest.approx(61 - 5)


def test_a_call_is_not_given_up_while_others_are_repaired_before_its_device():
    kinds = [FunctionSpec("a", types=("A100",))]
    calls = workload((20_000, 0, 10), functions=kinds)
    found = simulate(calls, "T4:200x8,A100:1", mtbf_h=1.0, mttr_s=20_000.0)
    assert found.refused == 0 and found.wait_max_s > 0


# --- learned keep-warm ------------------------------------------------------------------------


def test_weights_come_over_the_network_once_and_then_from_the_node():
    heavy = [FunctionSpec("f", weights_mib=1200.0)]
    found = simulate(workload((0, 0, 1), (100, 0, 1), functions=heavy), idle_s=1.0)
    assert found.done_mean_s == pytest.approx((1 + 1.0 + 1 + 0.1) / 2)


def test_weights_come_over_the_network_again_when_the_nodes_memory_could_not_keep_them(tmp_path):
    """A node of 250 MiB keeps the last two of three that have 100, and none of 300."""
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn,1000,250,1,T4\n")
    kinds = [FunctionSpec(f"f{number}", weights_mib=100.0 if number < 3 else 300.0) for number in range(4)]
    order = [0, 1, 0, 2, 0, 1, 3, 3, 1]
    calls = workload(*((10.0 * place, number, 1.0) for place, number in enumerate(order)), functions=kinds)
    rules = Rules(start_s=0.0, idle_s=0.0, network_mib_per_s=100.0, host_mib_per_s=1000.0)
    run = Simulator(calls, read_pool(tmp_path / "nodes.csv"), "best_fit", rules).run()
    assert list(run.done_s) == pytest.approx([2, 2, 1.1, 2, 1.1, 2, 4, 4, 1.1])


def test_a_function_returns_to_the_device_where_its_weights_lately_were():
    kinds = [FunctionSpec("a", share=300, weights_mib=1200.0), FunctionSpec("b", share=300, weights_mib=1200.0)]
    back = {}
    for later in (100, 10_000):
        calls = workload((0, 0, 50), (0, 0, 50), (0, 0, 50), (0, 1, 2), (70, 0, 5), (later, 1, 1), functions=kinds)
        run = Simulator(calls, parse_pool("T4:2x1"), "dgsf", Rules(idle_s=0.0))
        opened: list[tuple[int, int]] = []
        track = run.fleet.track
        run.fleet.track = lambda item, track=track, opened=opened: (
            opened.append((item.function, item.row)),
            track(item),
        )[1]
        run.run()
        back[later] = [row for function, row in opened if function == 1]
    assert back[100][0] == back[100][1] == 1  # the first device was full then, and would be taken first
    assert back[10_000] == [1, 0]  # half an hour later nothing is left there


@pytest.mark.parametrize("seed", range(5))
def test_weights_draw_as_they_do_in_the_placer_itself(seed):
    random = Random(seed)
    machine, other = (Machine(parse_pool("T4:6x4,A100:2x4"), "dgsf", seed) for _ in range(2))
    plain = other._placer._placer
    specs = [FunctionSpec(f"f{n}", share=random.choice((100, 250, 400, 1000)), weights_mib=1.0) for n in range(12)]
    kept = []
    for step in range(300):
        if kept and random.random() < 0.45:
            for each, item in zip((machine, other), kept.pop(random.randrange(len(kept))), strict=True):
                each.free(item, float(step))
            continue
        number = random.randrange(12)
        request = request_of(specs[number], "t", exclusive=False)
        other._residency.refresh(request.weights, float(step))
        wanted, found = plain.place(request), machine.place(number, request, float(step))
        if isinstance(wanted, Refusal):
            assert isinstance(found, Refusal)
            continue
        assert (found.row, found.devices) == (wanted.row, wanted.devices)
        kept.append((found, other.book(number, request, wanted, float(step))))


def test_a_faster_device_and_a_slow_link_change_the_run():
    assert simulate(workload((0, 0, 8)), "A100:1").done_mean_s == pytest.approx(2)
    far = Remoted(Recording((Command(100.0), Command(100.0, sync=True))), Link(round_trip_us=100.0), "fabric")
    assert simulate(workload((0, 0, 8)).changed(remoted=far), "T4:1").done_mean_s == pytest.approx(12)
    assert simulate(workload((0, 0, 8)).changed(scales=False), "A100:1").done_mean_s == pytest.approx(8)


def test_whole_devices_come_together_from_one_node():
    pair = [FunctionSpec("pair", share=0, devices=2)]
    found = simulate(workload((0, 0, 10), (0, 0, 10), functions=pair), "T4:2x2", idle_s=0.0)
    assert (found.wait_max_s, found.peak_allocation) == (0, 1.0)
    apart = simulate(workload((0, 0, 10), functions=pair), "T4:2x1", idle_s=0.0)
    assert apart.refused == 1


def test_the_peak_is_the_most_that_is_given_away_at_once():
    halves = [FunctionSpec("f", share=500), FunctionSpec("g", share=500)]
    found = simulate(workload((0, 0, 100), (20, 1, 280), functions=halves), "T4:2", idle_s=0.0)
    assert found.peak_allocation == 0.5
    assert found.allocation == pytest.approx((100 + 280) / 2 / 300 / 2)


def test_what_comes_when_another_goes_does_not_add_to_the_peak():
    halves = [FunctionSpec("f", share=500)]
    found = simulate(workload((0, 0, 10), (10, 0, 10), functions=halves), idle_s=0.0)
    assert found.peak_allocation == 0.5


def test_means_go_evenly_from_the_start_to_the_end_of_the_run():
    found = simulate(workload((0, 0, 100), (20, 1, 280)), "T4:2", idle_s=0.0)
    assert found.at_s == pytest.approx([3.0 * index for index in range(100)] + [300])
    by_time = dict(zip(found.at_s, found.allocated, strict=True))
    means = [by_time[at] for at in (0, 15, 18, 21, 99, 102, 297, 300)]
    assert means == pytest.approx([0.5, 0.5, 2 / 3, 1, 2 / 3, 0.5, 0.5, 0])
    assert len(found.fragmented) == len(found.waiting) == len(found.at_s)


def test_means_stay_few_where_the_run_is_much_longer_than_its_arrivals():
    found = simulate(workload(*[(0, 0, 1.0)] * 1000), idle_s=0.0)
    assert 100 <= len(found.at_s) <= 201
    assert found.at_s[-1] == pytest.approx(1000)
    middle = (found.at_s[50] + found.at_s[51]) / 2
    assert found.waiting[50] == pytest.approx(999.5 - middle, abs=0.5) and found.waiting[-1] == 0


def test_useless_room_is_a_mean_over_time():
    both = [FunctionSpec("half", share=500), FunctionSpec("whole", share=0, devices=1)]
    found = simulate(workload((0, 0, 100), (200, 1, 100), functions=both), idle_s=0.0)
    assert found.fragmentation == pytest.approx(0.5 * 0.5 / 3)  # half is free for a third, of no use to half


def test_what_comes_in_a_steady_rhythm_is_not_missed_nor_counted_twice():
    """One second of every hour: looks that are hours apart saw all of these or none."""
    hourly = workload(*((3600.0 * hour, 0, 1.0) for hour in range(101)), functions=[FunctionSpec("f", share=600)])
    found = simulate(hourly, idle_s=0.0)
    busy = 101 / 360_001
    assert found.fragmentation == pytest.approx(0.4 * busy)
    assert max(found.fragmented) < 0.001 and sum(found.allocated) / 101 == pytest.approx(0.6 * busy, rel=0.02)


def test_what_no_device_can_ever_hold_is_refused_and_told():
    other = [FunctionSpec("f", types=("H100",))]
    found = simulate(workload((0, 0, 10), (1, 0, 10), functions=other))
    assert (found.refused, found.slo_misses) == (2, 1.0)


# --- device memory ----------------------------------------------------------------------------
def test_weights_and_what_it_works_in_take_memory_on_the_device():
    kinds = [FunctionSpec("f", share=100, weights_mib=6_600.0, work_mib=3_400)]
    run = Simulator(workload((0, 0, 10), (0, 0, 10), functions=kinds), parse_pool("T4:1"), "best_fit", Rules(**INSTANT))
    assert run.fleet.requests[0].memory_bytes == 10_000 * 2**20
    assert list(run.run().wait_s) == pytest.approx([0, 10 + 5.5])  # 16 GiB hold one
    assert simulate(workload((0, 0, 10), (0, 0, 10), functions=kinds), "A100:1").wait_max_s == 0


def test_what_is_larger_than_any_device_is_refused_with_the_reason():
    heavy = [FunctionSpec("f", share=100, weights_mib=20_000.0)]
    found = simulate(workload((0, 0, 10), functions=heavy), "T4:4")
    assert found.refused == 1
    ((reason, calls),) = found.why_refused.items()
    assert "asks for 19.5 GiB" in reason and "the largest matching device has 16.0 GiB" in reason and calls == 1


def test_tasks_that_say_nothing_of_memory_take_none():
    assert request_of(FunctionSpec("f", share=100), "t", exclusive=False).memory_bytes == 0


def test_room_without_memory_is_of_no_use():
    kinds = [FunctionSpec("f", share=100, weights_mib=10_000.0)]
    found = simulate(workload((0, 0, 100), functions=kinds), "T4:1", idle_s=0.0)
    assert found.fragmentation == pytest.approx(0.9)  # of 16 GiB, 10 are taken


def test_room_without_the_nodes_memory_is_of_no_use():
    kinds = [FunctionSpec("f", share=100, host_memory_mib=100 * 1024)]
    found = simulate(workload((0, 0, 100), functions=kinds), "T4:1", idle_s=0.0)
    assert found.fragmentation == pytest.approx(0.9)  # of 128 GiB, 100 are taken


def test_the_most_called_shapes_stand_for_all():
    """A hundred that are called alike; four fifths of a device are free and of no use to any."""
    kinds = [FunctionSpec(f"f{n}", share=900 + n) for n in range(100)] + [FunctionSpec("small", share=200)]
    calls = [(0.0, 100, 1000.0), *((1000.0 + n, n, 1.0) for n in range(100))]
    run = Simulator(workload(*calls, functions=kinds), parse_pool("T4:1"), "best_fit", Rules(**INSTANT, idle_s=0.0))
    run.run()
    assert run.timeline.fragmented[run.timeline.allocated.index(0.2)] == pytest.approx(0.8)


# --- what is never placed ---------------------------------------------------------------------
def test_a_call_that_can_never_be_placed_is_refused_at_once_and_waits_for_nothing():
    kinds = [FunctionSpec("f"), FunctionSpec("never", types=("H100",))]
    calls = workload((0, 1, 1), (0, 1, 1), (0, 0, 10), (1, 1, 1), (5, 0, 10), functions=kinds)
    run = Simulator(calls, parse_pool("T4:1"), "best_fit", Rules(**INSTANT))
    assert run.run(lambda done: None).refused == 3
    found = summarise(run)
    assert (found.wait_max_s, found.wait_mean_s, found.wait_p50_s) == (5, 2.5, 2.5)
    assert found.why_refused == {"no device of type H100; the pool has: T4": 3}
    assert run.timeline.waiting[1] == 0, "nobody waits for what will never be"


def test_a_pool_without_a_place_for_anybody_has_no_delays():
    found = simulate(workload((0, 0, 10), functions=[FunctionSpec("f", types=("H100",))]))
    assert (found.wait_max_s, found.wait_mean_s, found.refused) == (0, 0, 1)


@pytest.mark.parametrize(
    ("needs", "reason"),
    [
        ({"cpu_milli": 120_000}, "asks for 120 processors; the largest matching node has 96"),
        ({"host_memory_mib": 2**21}, "asks for 2.0 TiB (2199023255552 bytes) of its node's memory"),
        ({"share": 0, "cpu_milli": 120_000}, "asks for 120 processors; the largest matching node has 96"),
    ],
)
def test_what_no_node_has_is_refused_for_good_and_says_what_there_is(needs, reason):
    machine = Machine(parse_pool("T4:1x8@96"), "first_fit", 0)
    asked = request_of(FunctionSpec("f", **needs), "t", exclusive=False)
    found = machine.find(asked, 0.0)
    assert isinstance(found, Refusal) and not found.ever and found.reason.startswith(reason)


def test_calls_that_wait_to_the_end_say_why(monkeypatch):
    run = Simulator(workload((0, 0, 10)), parse_pool("T4:1"), "best_fit", Rules(**INSTANT))
    run.machine.set_health(0, False)  # and nobody repairs it
    found = summarise(run.run())
    assert found.refused == 1 and found.wait_max_s == 0
    assert found.why_refused == {"waited to the end: no healthy device of a fitting type has 1 whole device(s) free": 1}


def test_reasons_are_a_mean_over_seeds_most_frequent_first():
    kinds = [FunctionSpec("a", types=("H100",)), FunctionSpec("b", types=("A100",))]
    calls = [(0, 0, 1), (0, 1, 1), (0, 1, 1)]
    wanted = Experiment(
        lambda seed: workload(*calls[: 1 + 2 * seed], functions=kinds),
        parse_pool("T4:1"),
        ["best_fit"],
        Rules(),
        seeds=2,
    )
    (found,) = run_experiment(wanted)
    assert list(found.why_refused.items()) == [
        ("no device of type A100; the pool has: T4", 1.0),
        ("no device of type H100; the pool has: T4", 1.0),
    ]


# --- deadlines --------------------------------------------------------------------------------
def test_a_call_with_a_deadline_gets_a_device_that_meets_it():
    """The cheap type is worth more to who has time; after the first calls it is known how long one takes."""
    calls = workload(*((100.0 * at, 0, 40.0) for at in range(6)))
    pool = "K80=12/1/0.01:4,H100=80/1.5/9:4"  # half as fast again, for 900 times the price
    patient = simulate(calls, pool, "dgsf", idle_s=0.0, slo_s=1000.0)
    hurried = simulate(calls, pool, "dgsf", idle_s=0.0, slo_s=30.0)
    assert patient.cost < 0.1 * hurried.cost
    assert (patient.slo_misses, hurried.slo_misses) == (0, pytest.approx(1 / 6))


def test_the_deadline_that_placement_hears_is_what_is_left_of_it():
    calls = workload((0, 1, 10), (20, 0, 10), (21, 1, 10))
    run = Simulator(calls, parse_pool("T4:1,A100:1"), "best_fit", Rules(**INSTANT, slo_s=60.0, idle_s=0))
    heard, find = [], run.machine.find

    def told(request, now):
        heard.append((request.function, request.deadline_s, request.run_s))
        return find(request, now)

    run.machine.find = told
    run.machine.set_health(1, False)
    run.run()
    assert heard == [("f1", 60, 0), ("f0", 60, 0), ("f1", 60, 10), ("f1", 51, 10)]


# --- sharing ----------------------------------------------------------------------------------
def test_calls_within_their_shares_do_not_slow_each_other():
    halves = [FunctionSpec("f", share=500, duty=0.5)]
    found = simulate(workload((0, 0, 10), (0, 0, 10), functions=halves))
    assert found.done_mean_s == pytest.approx(10)


def test_calls_that_need_the_whole_device_share_its_time_exactly():
    greedy = [FunctionSpec("f", share=500, duty=1.0)]
    found = simulate(workload((0, 0, 10), (0, 0, 10), functions=greedy))
    assert found.done_mean_s == pytest.approx(20)
    later = Simulator(
        workload((0, 0, 10), (5, 0, 10), functions=greedy), parse_pool("T4:1"), "best_fit", Rules(**INSTANT)
    )
    later.run()  # alone for 5 s, both at half speed for 10 s, the second alone for its last 5 s
    assert list(later.done_s) == pytest.approx([15, 15])


def test_interference_slows_each_neighbour():
    quarters = [FunctionSpec("f", share=250)]
    found = simulate(workload((0, 0, 10), (0, 0, 10), functions=quarters), interference=0.1)
    assert found.done_mean_s == pytest.approx(11)


def test_sharing_waits_less_than_half_of_exclusive_devices_on_bursts():
    def calls(seed: int) -> Workload:
        return draw(Synthetic(calls=2000, rate_per_s=4.0, shares=(250,), duty=0.5, burst=4.0, seed=seed))

    wanted = Experiment(calls, parse_pool("T4:8"), ["best_fit"], Rules(interference=0.05))
    shared, exclusive = sharing_against_exclusive(wanted)
    assert exclusive.wait_mean_s > 0
    assert shared.wait_mean_s / exclusive.wait_mean_s <= 0.47


# --- failures ----------------------------------------------------------------------------------
def test_a_failing_device_loses_time_but_no_call():
    calls = draw(Synthetic(calls=400, rate_per_s=2.0, mean_run_s=20.0, seed=1))
    found = simulate(calls, "T4:16", mtbf_h=0.05, mttr_s=30.0)
    assert found.retried > 0 and found.lost_gpu_hours > 0
    assert found.refused == 0
    assert found.calls == 400


def test_a_call_that_outlives_every_device_is_lost_after_ten_attempts():
    found = simulate(workload((0, 0, 360_000), (0, 1, 1)), "T4:64", mtbf_h=1.0)
    assert (found.lost, found.retried, found.refused) == (1, 9, 0)
    assert found.slo_misses == 0.5
    assert found.done_mean_s == pytest.approx(1)  # of the other


def test_jain_is_one_for_equals_and_one_nth_for_a_single_winner():
    assert jain([3, 3, 3]) == pytest.approx(1)
    assert jain([3, 0, 0]) == pytest.approx(1 / 3)
    assert jain([]) == jain([0.0]) == 1.0


# --- experiments ------------------------------------------------------------------------------
def test_seeds_are_averaged_and_policies_see_the_same_calls():
    def calls(seed: int) -> Workload:
        return draw(Synthetic(calls=300, shares=(100, 500), seed=seed))

    told: list[tuple[str, int, int, int]] = []
    wanted = Experiment(calls, parse_pool("T4:4"), ["best_fit", "random"], Rules(), seeds=2)
    results = run_experiment(wanted, lambda *news: told.append(news))
    assert [(result.policy, result.seeds, result.calls) for result in results] == [
        ("best_fit", 2, 300),
        ("random", 2, 300),
    ]
    runs = list(dict.fromkeys(news[:2] for news in told))
    assert runs == [("best_fit", 0), ("random", 0), ("best_fit", 1), ("random", 1)]
    assert results == run_experiment(wanted)


def test_progress_moves_by_what_is_over_also_while_the_last_calls_run():
    told = []
    calls = workload(*[(0.0, 0, 1.0)] * 300 + [(1.0, 1, 1.0)] * 100, functions=[FunctionSpec("f"), NEVER])
    Simulator(calls, parse_pool("T4:1"), "best_fit", Rules(**INSTANT)).run(told.append)
    assert told == sorted(told) and told[-1] == 400
    assert len(set(told)) == 200
    assert told[49] == 100, "those that are refused are over at once, and the others one by one"


def test_fairness_is_among_those_who_called():
    found = simulate(workload((0, 0, 5), (0, 1, 5), tenants=2), pool="T4:2")
    silent = workload((0, 0, 5), (0, 1, 5), tenants=2)
    silent.tenants.extend(["t2", "t3"])
    assert found.fairness == simulate(silent, pool="T4:2").fairness == 1.0


@pytest.mark.parametrize(("slo_s", "fast"), [(1000.0, 0), (3.5, 0), (1.5, 38)])
def test_a_deadline_that_the_cheap_type_meets_sends_nothing_to_the_dear_one(slo_s, fast):
    calls = workload(*((3.0 * call, 0, 2.0) for call in range(40)))
    run = Simulator(calls, parse_pool("SLOW=16/1/0.5:2,FAST=16/2/50:2"), "dgsf", Rules(slo_s=slo_s, idle_s=0)).run()
    assert sum(took < 1.5 for took in run.done_s) == pytest.approx(fast, abs=1)
