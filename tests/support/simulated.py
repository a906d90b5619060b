"""Simulations of a few calls, written down one by one."""

from __future__ import annotations

from dgsf.sim.engine import Simulator
from dgsf.sim.pools import parse_pool
from dgsf.sim.result import Result, summarise
from dgsf.sim.rules import Rules
from dgsf.sim.workload import FunctionSpec, Workload

INSTANT = {"start_s": 0.0}


def workload(
    *calls: tuple[float, int, float], functions: list[FunctionSpec] | None = None, tenants: int = 1
) -> Workload:
    found = functions or [FunctionSpec(f"f{index}") for index in range(1 + max(function for _, function, _ in calls))]
    return Workload(
        "test",
        found,
        [f"t{index}" for index in range(tenants)],
        [at for at, _, _ in calls],
        [function for _, function, _ in calls],
        [function % tenants for _, function, _ in calls],
        [run for _, _, run in calls],
    )


def simulate(calls: Workload, pool: str = "T4:1", policy: str = "best_fit", **rules: float) -> Result:
    return summarise(Simulator(calls, parse_pool(pool), policy, Rules(**{**INSTANT, **rules})).run())
