"""Room of no use over time, noted change by change, is what a look at every change adds up to."""

from __future__ import annotations

from random import Random

import pytest

from dgsf.sim import useless
from dgsf.sim.instance import Instance
from dgsf.sim.machine import Machine, request_of
from dgsf.sim.pools import parse_pool
from dgsf.sim.workload import FunctionSpec

KINDS = [
    FunctionSpec("small", share=300, weights_mib=5_000.0, cpu_milli=2_000),
    FunctionSpec("large", share=700, types=("A100",), host_memory_mib=100_000),
    FunctionSpec("two", devices=2),
]


@pytest.mark.parametrize("notes", [3, 1024])
def test_all_changes_add_up(monkeypatch, notes):
    monkeypatch.setattr(useless, "NOTES", notes)
    requests = [request_of(kind, "t", exclusive=False) for kind in KINDS]
    mix = list(zip(requests, (0.5, 0.3, 0.2), strict=True))
    machine, random = Machine(parse_pool("T4:3x2@12,A100:2x4"), "dgsf", 0, mix), Random(7)
    there: list[Instance] = []
    now = looked = 0.0
    for step in range(200):
        passed = random.choice((0.0, 1.0, 7.5))
        looked += machine.useless.now() * passed
        now += passed
        if step % 40 == 20:
            assert machine.useless.until(now) == pytest.approx(looked)
        if step % 9 == 0:
            machine.set_health(random.randrange(14), random.random() < 0.8, now)
        if there and random.random() < 0.45:
            machine.free(there.pop(random.randrange(len(there))), now)
            continue
        number = random.randrange(3)
        item = machine.place(number, requests[number], now)
        if isinstance(item, Instance):
            there.append(item)
    assert machine.useless.until(now) == pytest.approx(looked)
    assert looked > 0


def test_a_mix_of_nothing_wastes_nothing():
    machine = Machine(parse_pool("T4:1"), "dgsf", 0)
    assert (machine.useless.until(5.0), machine.useless.now()) == (0.0, 0.0)
