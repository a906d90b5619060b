"""Calls run as fast as a table of speeds says, whatever else is in the pool."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dgsf.core.placement import Speeds
from dgsf.sim.engine import Simulator
from dgsf.sim.pools import parse_pool
from dgsf.sim.result import summarise
from dgsf.sim.rules import Rules
from dgsf.sim.truespeeds import level_of, true_speeds
from dgsf.sim.workload import FunctionSpec
from tests.support.simulated import INSTANT, workload


def _run_s(pool: str, table: dict[str, float], type_: str, policy: str = "best_fit") -> float:
    """What a call of 1,000 s takes on a device of this type."""
    spec = replace(parse_pool(pool), speeds=Speeds({("f", name): speed for name, speed in table.items()}))
    call = workload((0, 0, 1000.0), functions=[FunctionSpec("f", types=(type_,))])
    return summarise(Simulator(call, spec, policy, Rules(**INSTANT)).run()).done_mean_s


@pytest.mark.parametrize("pool", ["T4:1", "T4:1,A100:1", "T4:1,A100:1,H100:1", "T4:1,B200=192/1/6:1"])
@pytest.mark.parametrize("policy", ["best_fit", "dgsf"])
def test_what_else_is_in_the_pool_does_not_change_a_run(pool, policy):
    table = {"T4": 1.0, "A100": 3.5, "H100": 1.0, "B200": 7.0}
    assert _run_s(pool, table, "T4", policy) == pytest.approx(1000)


def test_a_run_takes_what_the_table_says_beside_a_t4():
    assert _run_s("A100:1", {"t4": 2.0, "a100": 7.0}, "A100") == pytest.approx(1000 / 3.5)
    assert _run_s("T4:1,H100:1", {"T4": 2.0, "A100": 7.0}, "H100") == pytest.approx(1000 / 8), "declared"


def test_without_a_t4_the_type_closest_to_it_has_its_declared_speed():
    table = {"k80": 10.0, "v100": 60.0, "p100": 24.0}
    assert true_speeds(table, parse_pool("V100:1")) == pytest.approx({"p100": 1.2, "k80": 0.5, "v100": 3.0})


def test_figures_that_come_with_a_pool_set_the_level_only_where_nothing_else_can():
    pool = parse_pool("B200=192/10/6:1,B300=192/20/9:1")
    assert level_of(["b200", "h100"], pool) == "h100"
    assert true_speeds({"b200": 1.0, "b300": 3.0, "b999": 5.0}, pool) == {"b200": 10.0, "b300": 30.0, "b999": 50.0}
    assert true_speeds({"b999": 5.0}, pool) == {}
