"""Slots, which are all that production asks for, are learned, measured and packed like the shares that they are."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from dgsf.core.placement import DeviceView, KeptPoolChooser, NodeView, Pool, Refusal, Request
from dgsf.core.placement.fragmentation import Fragmentation
from dgsf.core.placement.model import PLENTY
from dgsf.core.placement.need import Need
from dgsf.core.placement.workload import Workload

GIB = 1024**3
KNOWN = pytest.mark.parametrize("duration_s", [0.0, 60.0], ids=["duration not known", "duration known"])
OURS = pytest.mark.parametrize("policy", ["fgd", "dgsf"])


def device(number, node, free=4, slots=4, type_="T4", cpu=PLENTY, **more):
    return DeviceView(
        number, type_, "cuda", True, slots, 64 * GIB, free, 64 * GIB, node=node, node_cpu_milli=cpu, **more
    )


def slot(types=("any",), **more):
    return Request(types, GIB, **more)


def drawn(random):
    """A pool of three types in any state."""
    devices, nodes = [], []
    for number in range(6):
        type_ = random.choice(["T4", "A100", "V100"])
        for _ in range(random.choice([1, 2, 4])):
            devices.append(device(len(devices), f"n{number}", random.randrange(5), type_=type_))
        nodes.append(NodeView(f"n{number}", random.choice([2000, 8000, 32_000])))
    return devices, nodes


@OURS
@KNOWN
def test_a_slot_is_placed_as_the_share_that_it_is(policy, duration_s):
    random, differ = Random(1), 0
    for _ in range(20):
        devices, nodes = drawn(random)
        slots, shares, first = (KeptPoolChooser(name) for name in (policy, policy, "first_fit"))
        busy_s = {view.id: random.choice([0.0, 30.0, 600.0]) for view in devices if view.free_slots < 4}
        for _ in range(60):
            asked = slot(
                (random.choice(["T4", "A100", "any"]),), cpu_milli=random.choice([0, 1000, 4000]), duration_s=duration_s
            )
            answers = [
                chooser.place(request, devices, nodes, busy_s=busy_s)
                for chooser, request in ((slots, asked), (shares, replace(asked, share=250)), (first, asked))
            ]
            if not isinstance(answers[0], Refusal):
                assert answers[0] == answers[1]
                differ += answers[0] != answers[2]
    assert differ, "and not as first fit would"


@OURS
@KNOWN
def test_a_slot_of_any_type_leaves_the_type_that_others_ask_for(policy, duration_s):
    devices = [device(n, "ab"[n // 2], 1, 1, type_=("A100", "T4")[n // 2]) for n in range(4)]
    chooser = KeptPoolChooser(policy)
    for _ in range(200):
        chooser.place(slot(("A100",), duration_s=duration_s), devices)
    assert chooser.place(slot(duration_s=duration_s), devices).node == "b"


@KNOWN
def test_a_slot_does_not_leave_others_without_processors(duration_s):
    """On node a it would leave two slots and no processor."""
    devices, nodes = [device(0, "a", 3), device(1, "b", 3)], [NodeView("a", 3000), NodeView("b", 48_000)]
    chooser, busy_s = KeptPoolChooser("dgsf"), {0: 60.0, 1: 60.0}
    for _ in range(100):
        chooser.place(slot(cpu_milli=1000, duration_s=duration_s), devices, nodes, busy_s=busy_s)
    hungry = slot(cpu_milli=3000, duration_s=duration_s)
    assert chooser.place(hungry, devices, nodes, busy_s=busy_s).node == "b"


@KNOWN
def test_a_node_that_does_not_tell_its_processors_has_plenty(duration_s):
    devices, nodes = [device(0, "a", 3), device(1, "silent", 3)], [NodeView("a", 3000)]
    chooser, busy_s = KeptPoolChooser("dgsf"), {0: 60.0, 1: 60.0}
    for _ in range(100):
        chooser.place(slot(cpu_milli=1000, duration_s=duration_s), devices, nodes, busy_s=busy_s)
    hungry = slot(cpu_milli=3000, duration_s=duration_s)
    assert chooser.place(hungry, devices, nodes, busy_s=busy_s).node == "silent"
    few = [device(0, "silent", 3), device(1, "a", 2)]
    gentle = slot(cpu_milli=100, duration_s=duration_s)
    assert chooser.place(gentle, few, [NodeView("a", 32_000)], busy_s=busy_s).node == "a", "the fuller one, as always"


def test_where_devices_have_other_numbers_of_slots_each_is_measured_by_its_own():
    """Two slots of 500 and four of 250: what is lost to those who want a slot is what is less than one of them."""
    pool = Pool.of([device(0, "halves", 2, 2), device(1, "quarters", 4, 4)])
    pool.room[:, 0] = pool.left[:, 0] = [400, 400]
    pool.changes += 1
    measure = Fragmentation(Workload([slot()]).popular(), pool)
    asked, rows = Need.of(Request(("any",), 0, share=100), pool), np.array([0, 1])
    assert measure.fall(pool, asked, rows, np.array([0, 0])).tolist() == [100.0, 0.0]
    asked = Need.of(Request(("any",), 0, share=200), pool)
    assert measure.fall(pool, asked, rows, np.array([0, 0])).tolist() == [200.0, -200.0]


def test_the_body_of_a_fabric_function_asks_for_no_device():
    bodies = Workload([Request(("host",), 0, cpu_milli=4000)] * 9 + [slot(cpu_milli=1000)])
    assert bodies.popular().kappa(250) == 4000, "processors for a whole device, by those who ask for devices"


@pytest.mark.parametrize("days", [0.001, 60])
def test_a_better_type_is_better_for_a_long_task_as_well(days):
    """The slower device is in use for as long, the faster one would be opened for it."""
    devices = [device(0, "a", 3, type_="T4"), device(1, "b", type_="A10", speed=1.3)]
    seconds = days * 86_400.0
    asked = slot(duration_s=seconds)
    assert KeptPoolChooser("dgsf").place(asked, devices, busy_s={0: 2 * seconds}).node == "b"
    preferred = slot(("A10", "T4"), duration_s=100 * seconds, scales=False)
    assert KeptPoolChooser("dgsf").place(preferred, devices, busy_s={0: 200 * seconds}).node == "b"
