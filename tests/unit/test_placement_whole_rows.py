"""Where some ask for several devices of one node and things end: nodes become whole again, and those few wait less."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from dgsf.core.placement import DeviceView, KeptPoolChooser, NodeView, Placer, Pool, Request
from dgsf.core.placement.model import PLENTY, WHOLE
from dgsf.core.placement.need import Need
from dgsf.core.placement.ours import Dgsf
from dgsf.core.placement.policy import placed
from dgsf.core.placement.together import Together
from dgsf.core.placement.turnover import Turnover
from dgsf.core.placement.workload import Workload as Shapes
from dgsf.core.policies import DEFAULT_PLACEMENT
from dgsf.sim.engine import Simulator
from dgsf.sim.pools import parse_pool
from dgsf.sim.rules import Rules
from dgsf.sim.workload import FunctionSpec, Workload

DEVICES = 4  # of a node
CORES = 32_000


def views(nodes: int) -> tuple[list[DeviceView], list[NodeView]]:
    devices = [
        DeviceView(number, "T4", "cuda", True, 1, PLENTY, 1, PLENTY, node=f"n{number // DEVICES}", free_share=WHOLE)
        for number in range(DEVICES * nodes)
    ]
    return devices, [NodeView(f"n{node}", CORES, PLENTY, CORES) for node in range(nodes)]


def one(cpu_milli: int = 1000, duration_s: float = 0.0) -> Request:
    return Request(("any",), 0, share=WHOLE, devices=1, cpu_milli=cpu_milli, duration_s=duration_s)


def several() -> Request:
    return Request(("any",), 0, share=WHOLE, devices=DEVICES, cpu_milli=1000)


def no_device() -> Request:
    return Request(("any",), 0, share=0, cpu_milli=1000)


def filled(*used: int) -> Pool:
    """A node for each number: so many of its devices are in use."""
    pool = Pool.of(*views(len(used)))
    fill(pool, *used)
    return pool


def fill(pool: Pool, *used: int) -> None:
    for row, count in enumerate(used):
        for column in range(count):
            pool.take(one(), placed(pool, row, (column,), WHOLE))


def default_after(pool: Pool, *, ended: bool) -> Placer:
    """The default when 64 have come and gone, some of which asked for several devices; or knowing this without."""
    policy = Dgsf(None if ended else Shapes([several(), *[one()] * 7]))
    placer = Placer(pool, policy, Random(0))
    for number in range(64 if ended else 1):
        asked = one() if number % 8 else several()
        pool.give_back(asked, pool.take(asked, placer.place(asked)))
    return placer


def test_one_more_task_puts_off_a_fuller_row_by_less():
    pool = filled(0, 1, 3)
    later = Together(Shapes([one(), several()]).popular(), pool).later(pool)
    assert later.tolist() == [later[0], later[0] / 2, later[0] / 4]
    assert later[0] > 0


def test_who_takes_no_device_keeps_a_row_too():
    pool = filled(0, 0)
    pool.take(no_device(), placed(pool, 1, (), 0))
    later = Together(Shapes([one(), several()]).popular(), pool).later(pool)
    assert later[1] == later[0] / 2


def test_of_a_node_that_does_not_say_how_many_processors_it_has_nobody_is_thought_to_take_some():
    devices, _ = views(1)
    pool = Pool.of(devices, [NodeView("n0", CORES)])
    together = Together(Shapes([one(), several()]).popular(), pool)
    assert together.later(pool).tolist() == together.later(filled(0)).tolist()


def test_a_row_that_never_holds_several_is_not_kept_for_them():
    pool = filled(0)
    asked = Request(("any",), 0, share=WHOLE, devices=DEVICES, cpu_milli=CORES + 1)
    assert Together(Shapes([one(), asked]).popular(), pool).later(pool).tolist() == [0.0]


def test_a_task_that_ends_before_others_puts_nothing_off():
    pool = Pool.of(*views(3))
    pool.now = 1000.0
    for row, ends_at in ((1, 1050.0), (2, 1200.0)):
        pool.take(one(), placed(pool, row, (0,), WHOLE), ends_at)
    later = Together(Shapes([one(), several()]).popular(), pool).later_by(pool, 100.0)
    assert later.tolist() == [later[0], later[0] / 2, 0.0]


def test_ends_that_nobody_knows_or_that_are_overdue_are_guessed():
    pool = filled(1, 1)
    pool.until[1, 0] = 5.0
    pool.now = 1000.0
    together = Together(Shapes([one(), several()]).popular(), pool)
    assert np.array_equal(together.later_by(pool, 100.0), together.later(pool))


@pytest.mark.parametrize(("ended", "node"), [(False, "n0"), (True, "n1")])
def test_where_things_end_a_task_goes_to_the_fuller_node_rather_than_where_processors_are_left(ended, node):
    """It leaves few processors for the last device of n1; n0 becomes whole only if it gets nothing more."""
    pool = filled(0, 0)
    placer = default_after(pool, ended=ended)
    fill(pool, 1, 2)
    pool.cpu[1] = 1500
    pool.changes[1] += 1
    assert placer.place(one()).node == node


@pytest.mark.parametrize(("duration_s", "node"), [(600.0, "n1"), (5.0, "n0")])
def test_a_long_task_goes_to_where_tasks_stay_long(duration_s, node):
    pool = filled(0, 0, 0)
    placer = default_after(pool, ended=True)
    for row, columns, ends_at in ((0, (0, 1), 10.0), (1, (0,), 1000.0)):
        for column in columns:
            pool.take(one(), placed(pool, row, (column,), WHOLE), ends_at)
    assert placer.place(one(duration_s=duration_s)).node == node


def test_production_tells_the_policy_when_whole_devices_are_free():
    devices, nodes = views(2)
    chooser = KeptPoolChooser("dgsf")
    for number in range(64):
        chooser.place(one() if number % 8 else several(), devices, nodes)
    used = [replace(view, free_slots=0, free_share=0) if view.id in (0, 1, 4) else view for view in devices]
    busy = {0: 10.0, 1: 10.0, 4: 1000.0}
    assert chooser.place(one(duration_s=600.0), used, nodes, busy_s=busy).node == "n1"
    assert chooser.place(one(), used, nodes, busy_s=busy).node == "n0"


def test_what_fills_up_for_good_has_no_turnover():
    pool, turnover = filled(*[0] * 50), Turnover()
    for number in range(200):
        turnover.comes(one(), pool)
        pool.take(one(), placed(pool, number // DEVICES, (number % DEVICES,), WHOLE))
    assert turnover.part == 0.0


def test_who_finds_no_room_and_asks_again_is_no_turnover():
    pool, policy = filled(*[0] * 10), Dgsf()
    placer = Placer(pool, policy, Random(1))
    for _ in range(35):
        pool.take(one(), placer.place(one()))
    for _ in range(200):
        placer.place(replace(several(), cpu_milli=10 * CORES))
    assert policy._turnover.part == 0.0


def test_turnover_nears_one_where_most_have_gone():
    pool, turnover = filled(2), Turnover()
    changes = [turnover.comes(one(), pool) for _ in range(200)]
    assert turnover.part == 1.0
    assert sum(changes) == 1, "kept scores grow old once"


def draw(seed: int, calls: int = 1000) -> Workload:
    """One of a hundred takes a node of eight, the others a device or a part of one; most are short, a few very long."""
    random = Random(seed)
    small = [FunctionSpec("one", devices=1, cpu_milli=8000), FunctionSpec("part", share=400, cpu_milli=6000)]
    eight = FunctionSpec("eight", devices=8, cpu_milli=64_000)
    functions = [eight if random.random() < 0.01 else random.choice(small) for _ in range(calls)]
    arrivals = sorted(random.uniform(0, 30_000) for _ in range(calls))
    runs = [random.lognormvariate(6.0, 1.5) for _ in range(calls)]
    return Workload("drawn", functions, ["t"], arrivals, list(range(calls)), [0] * calls, runs)


def waited(policy: str) -> float:
    rules = Rules(idle_s=0.0, start_s=0.0, durations=True)
    return sum(sum(Simulator(draw(seed), parse_pool("T4:6x8"), policy, rules).run().wait_s) for seed in range(6))


def test_where_durations_are_known_less_is_waited_than_with_any_other():
    assert waited(DEFAULT_PLACEMENT) < min(waited(policy) for policy in ("fgd", "best_fit", "gavel"))


@pytest.mark.parametrize("cpu_milli", [0, 1000, CORES])
def test_what_a_share_takes_from_those_who_ask_for_several_is_the_same_asked_by_row_or_by_device(cpu_milli):
    pool = filled(0, 1, 3, DEVICES, 0)
    request = Request(("any",), 0, share=100, cpu_milli=cpu_milli)
    need = Need.of(request, pool)
    together = Together(Shapes([several(), several(), one()]).popular(), pool)
    rows = np.repeat(np.arange(len(pool.nodes)), DEVICES)
    opens = (pool.room == WHOLE).ravel()
    by_device = together.lost(pool, need, rows, opens.astype(np.int64))
    assert by_device.any()
    assert together.lost_by_one(pool, need, rows, opens).tolist() == by_device.tolist()


@pytest.mark.parametrize("duration_s", [0.0, 600.0, 1e5])
def test_types_come_before_nodes_that_become_whole_however_wide_these_are(duration_s):
    wide = 72
    pool = Pool.of(
        DeviceView(100 * kind + each, type_, "cuda", True, 1, PLENTY, 1, PLENTY, speed, 1.0, type_, free_share=WHOLE)
        for kind, (type_, speed) in enumerate((("T4", 1.0), ("V100", 1.2)))
        for each in range(wide)
    )
    placer = Placer(pool, Dgsf(), Random(0))
    asked = (replace(several(), devices=wide, cpu_milli=0), Request(("any",), 0, share=500, duration_s=duration_s))
    for number in range(200):
        request = asked[number % 2]
        pool.give_back(request, pool.take(request, placer.place(request)))
    for column in range(wide // 2):
        pool.take(one(0), placed(pool, 0, (column,), WHOLE), 2 * duration_s)
    assert placer.place(asked[1]).node == "V100"
