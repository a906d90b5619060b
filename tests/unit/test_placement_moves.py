"""Which running tasks move so that a device can be given up; and the same in the simulator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dgsf.core.placement import DeviceView, NodeView, Placement, Pool, Request
from dgsf.core.placement.consolidate import Budget, MoveRules, Running, moves_to_give_up_one
from dgsf.errors import UsageError
from dgsf.sim.engine import Simulator
from dgsf.sim.pools import parse_pool
from dgsf.sim.result import summarise
from dgsf.sim.rules import Rules
from dgsf.sim.workload import FunctionSpec, Workload

GIB = 2**30
RULES = MoveRules(copy_s=10.0, pause_s=1.0, least_saved_s=100.0, stays_free_s=1e6, room_left=0, soon_s=60.0)


class World:
    """Devices of one node each, and who is on them."""

    def __init__(self, types="AAA", cpu_milli=8000):
        devices = [
            DeviceView(number, type_, "cuda", True, 1, GIB, 1, GIB, node=f"n{number}", free_share=1000)
            for number, type_ in enumerate(types)
        ]
        self.pool = Pool.of(devices, [NodeView(f"n{number}", cpu_milli, GIB) for number in range(len(types))])
        self.on = {}

    def put(self, key, device, share, ends_s, **more):
        request = Request(("any",), more.pop("memory", 0), share=share, cpu_milli=more.pop("cpu_milli", 0))
        place = self.pool.where[device]
        where = Placement((device,), f"n{device}", place[0], (place[1],), share)
        running = Running(key, request, self.pool.take(request, where, ends_s), ends_s, **more)
        self.on.setdefault(place, []).append(running)
        return self

    def moves(self, rules=RULES, most=10):
        found = moves_to_give_up_one(self.pool, self.on, 0.0, rules, most)
        return [(move.key, move.to.devices[0]) for move in found]


def test_the_device_goes_for_which_each_move_saves_most():
    world = World().put(10, 0, 600, 900.0).put(20, 1, 200, 900.0).put(21, 1, 150, 900.0)
    assert world.moves() == [(10, 1)]
    assert world.moves(replace(RULES, least_saved_s=1000.0)) == []


def test_a_task_that_ends_soon_is_not_moved_and_only_delays_the_gain():
    world = World().put(10, 0, 900, 5000.0).put(20, 1, 50, 500.0).put(21, 1, 300, 50.0)
    assert world.moves() == [(20, 0)]


def test_nothing_moves_that_would_only_keep_another_device_in_use():
    world = World().put(10, 0, 300, 90.0).put(20, 1, 300, 1000.0)
    assert world.moves() == []  # the first ends soon anyway, the second would keep the first device for as long


def test_nothing_moves_unless_all_that_must_has_room():
    world = World().put(10, 0, 500, 900.0).put(20, 1, 600, 900.0)
    assert world.moves() == []
    world = World().put(10, 0, 500, 900.0).put(20, 1, 450, 900.0)
    assert world.moves() == [(10, 1)]
    assert world.moves(replace(RULES, room_left=100)) == []
    assert world.moves(most=0) == []


@pytest.mark.parametrize(
    "world",
    [
        World("AB").put(10, 0, 300, 900.0).put(20, 1, 300, 900.0),
        World("AA").put(10, 0, 300, 900.0, memory=GIB).put(20, 1, 300, 900.0, memory=GIB),
        World("AA").put(10, 0, 300, 900.0, cpu_milli=6000).put(20, 1, 300, 900.0, cpu_milli=6000),
        World("AA").put(10, 0, 300, 900.0, movable=False).put(20, 1, 300, 900.0, movable=False),
        World("AA").put(10, 0, 1000, 900.0),
    ],
    ids=["other type", "memory", "processors", "not movable", "whole device"],
)
def test_a_move_passes_the_filters_of_placement(world):
    assert world.moves() == []


def test_an_unhealthy_device_is_left_but_never_moved_to():
    world = World("AA").put(10, 0, 300, 900.0).put(20, 1, 300, 2000.0)
    world.pool.set_health(1, False)
    assert world.moves() == [(20, 0)]
    world.pool.set_health(1, True)
    world.pool.set_health(0, False)
    assert world.moves() == [(10, 1)]


def test_trying_changes_nothing():
    world = World().put(10, 0, 600, 900.0).put(20, 1, 200, 900.0)
    room, changes = world.pool.room.copy(), world.pool.changes.copy()
    assert world.moves()
    assert (world.pool.room == room).all() and (world.pool.changes == changes).all()


def test_moves_are_limited_per_hour():
    budget = Budget(6.0)
    assert budget.left(0.0) == 6
    budget.spend(6)
    assert budget.left(300.0) == 0
    assert budget.left(1200.0) == 2
    assert budget.left(1e6) == 6


def _two_calls():
    functions = [FunctionSpec("a", share=400), FunctionSpec("b", share=700), FunctionSpec("c", share=500)]
    return Workload("two", functions, ["t"], [0.0, 0.0, 0.0], [0, 1, 2], [0, 0, 0], [1000.0, 100.0, 1000.0])


def _simulate(rules=None, **more):
    settings = Rules(idle_s=0.0, start_s=0.0, durations=True, moves=rules, **more)
    return summarise(Simulator(_two_calls(), parse_pool("T4:3x1"), "worst_fit", settings).run())


def test_a_move_holds_both_devices_while_it_copies_and_delays_the_call():
    still, moved = _simulate(), _simulate(RULES)
    assert still.gpu_hours * 3600 == pytest.approx(1000 + 100 + 1000)
    assert moved.moves == 1  # when b ends, a goes to c's device, or c to a's
    assert moved.gpu_hours * 3600 == pytest.approx(100 + 100 + 1001 + 10)
    assert moved.twice_gpu_hours * 3600 == pytest.approx(0.4 * 10, rel=0.3)
    assert moved.done_mean_s * 3 == pytest.approx(still.done_mean_s * 3 + 1)


def test_calls_that_share_a_device_are_timed_anew_when_one_moves():
    moved = _simulate(RULES, interference=0.5)
    assert moved.moves == 1
    assert moved.done_mean_s > (1000 + 100 + 1000 * 1.4) / 3


def test_a_copy_must_not_outlive_what_ends_soon():
    with pytest.raises(UsageError, match="must be from 0 to 60"):
        Rules(moves=MoveRules(copy_s=100.0))
