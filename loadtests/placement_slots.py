"""What production packs: quarters of devices of two equal types, for workers of which some need many processors.

Drawn, not a trace: half of the workers take only one of the types, and they hold their place for lognormal times.  Who
takes the type or the processors that others need makes them wait; who opens more devices than needed holds GPU hours.
"""

from __future__ import annotations

from random import Random
from statistics import mean

from dgsf.sim.engine import Simulator
from dgsf.sim.pools import load_pool
from dgsf.sim.result import Result, summarise
from dgsf.sim.rules import Rules
from dgsf.sim.workload import FunctionSpec, Workload
from loadtests.placement_tables import console, table
from loadtests.progress import doing

POOL = "L=16/1/1:16x4@24,M=16/1/1:16x4@24"  # as fast and as dear as each other
SLOTS = 512
WORKERS = 12_000
HELD_S = 600.0  # mean
LOADS = (0.3, 0.7, 0.8)  # of the slots
POLICIES = (("first_fit", False), ("best_fit", False), ("fgd", False), ("dgsf", False), ("dgsf", True))


def show(seeds: int) -> None:
    title = f"drawn workers on {POOL}, {seeds} seeds: GPU hours / mean wait in s / part that waits"
    shown = table(title, "policy, durations", *(f"load {load}" for load in LOADS))
    for policy, known in POLICIES:
        name = f"{policy}, {'known' if known else 'not known'}"
        with doing(f"slots, {name}"):
            cells = [_cell([_run(policy, known, load, seed) for seed in range(seeds)]) for load in LOADS]
        shown.add_row(name, *cells)
    console.print(shown)


def _cell(runs: list[Result]) -> str:
    waiting = mean(1.0 - _part_at_once(run) for run in runs)
    return f"{mean(run.gpu_hours for run in runs):.0f} / {mean(run.wait_mean_s for run in runs):.1f} / {waiting:.2f}"


def _part_at_once(run: Result) -> float:
    """The part of the curve of waits that is at 0."""
    return sum(wait <= 0.0 for wait in run.wait_curve_s) / len(run.wait_curve_s)


def _run(policy: str, known: bool, load: float, seed: int) -> Result:
    rules = Rules(idle_s=0.0, start_s=0.0, fair=False, durations=known)
    return summarise(Simulator(_draw(load, seed), load_pool(POOL), policy, rules).run())


def _draw(load: float, seed: int) -> Workload:
    random = Random(seed)
    arrivals, functions, runs, now = [], [], [], 0.0
    for number in range(WORKERS):
        now += random.expovariate(load * SLOTS / HELD_S)
        types, cpu_milli = (random.choice(("any", "L")),), random.choice((1000, 1000, 1000, 4000))
        arrivals.append(now)
        functions.append(FunctionSpec(f"f{number}", types, share=250, cpu_milli=cpu_milli))
        runs.append(random.lognormvariate(-0.5, 1.0) * HELD_S)
    return Workload("slots", functions, ["t"], arrivals, list(range(WORKERS)), [0] * WORKERS, runs)
