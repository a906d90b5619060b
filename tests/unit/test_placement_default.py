"""The default is never worse than the policies it replaces on short tasks that share GPUs, durations known or not."""

from __future__ import annotations

from random import Random

import pytest

from dgsf.core.policies import DEFAULT_PLACEMENT
from dgsf.sim.engine import Simulator
from dgsf.sim.pools import parse_pool
from dgsf.sim.rules import Rules
from dgsf.sim.workload import FunctionSpec, Workload

OTHERS = ("first_fit", "best_fit", "gpu_packing", "fgd")
CALLS = 500
SEEDS = 4


def draw(seed: int) -> Workload:
    """About five GPUs' worth of short tasks, each its own function; most are short, a few very long."""
    random = Random(seed)
    arrivals = sorted(random.uniform(0, 20_000) for _ in range(CALLS))
    functions = [FunctionSpec(f"f{n}", share=random.choice([50, 100, 140, 200, 250, 400, 750])) for n in range(CALLS)]
    runs = [random.lognormvariate(6.4, 1.2) for _ in range(CALLS)]
    return Workload("drawn", functions, ["t"], arrivals, list(range(CALLS)), [0] * CALLS, runs)


@pytest.mark.parametrize("durations", [False, True], ids=["durations not known", "durations known"])
@pytest.mark.parametrize("pool", ["T4:32x1", "T4:4x8"])
def test_the_default_holds_no_more_gpu_hours_than_the_best_of_the_others(pool, durations):
    def held(policy: str) -> float:
        rules = Rules(idle_s=0.0, start_s=0.0, durations=durations)
        runs = (Simulator(draw(seed), parse_pool(pool), policy, rules).run() for seed in range(SEEDS))
        return sum(run.machine.held_s for run in runs)

    assert held(DEFAULT_PLACEMENT) <= 1.01 * min(held(policy) for policy in OTHERS)
