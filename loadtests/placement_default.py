"""The default policy beside all others: openb, the tenants with and without expected durations, and mixed pools.

Every policy is made by its name, as production makes it, and learns only from what arrives.  The last column says how
far a policy is from the best of the others; the default should never be more than 1 % above them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import mean

from dgsf.core.placement import Policy, Workload, make_policy
from dgsf.core.policies import DEFAULT_PLACEMENT, PLACEMENT_POLICIES
from dgsf.sim import openb
from dgsf.sim.experiment import Experiment, run_experiment
from dgsf.sim.pools import load_pool
from dgsf.sim.result import Result
from dgsf.sim.rules import Rules
from dgsf.sim.synthetic import Synthetic, draw
from dgsf.sim.traces import read_trace
from loadtests.placement_tables import console, table
from loadtests.progress import doing

POOLS = ("T4:64x1", "T4:8x8")
MIXED = (("T4:32,A100:32", 5.0), ("T4:32,A100:32", 60.0), ("T4:48,V100:12,A100:4", 40.0))  # pool, calls per second
MIXED_CALLS = 5000
MOST_SEEDS = 3  # of openb: what matters here is the order


def show(folder: Path, seeds: int) -> None:
    seeds = min(seeds, MOST_SEEDS)
    found: dict[str, dict[str, float]] = {"openb, % left": _openb(folder, seeds)}
    for durations in (False, True):
        for pool in POOLS:
            name = f"hours, {pool}, times {'known' if durations else 'not known'}"
            with doing(name):
                found[name] = _tenants(folder, pool, durations)
    title = (
        f"all policies by name, learning from arrivals: % of openb's GPUs left unallocated ({seeds} seeds), "
        "GPU hours of the tenants"
    )
    shown = table(title, "policy", *found)
    for policy in PLACEMENT_POLICIES:
        shown.add_row(policy, *(f"{figures[policy]:.2f}" for figures in found.values()))
    console.print(shown)
    for name, figures in found.items():
        others = min(figure for policy, figure in figures.items() if policy != DEFAULT_PLACEMENT)
        console.print(f"{name}: {DEFAULT_PLACEMENT} ÷ best of the others = {figures[DEFAULT_PLACEMENT] / others:.3f}")


def show_mixed(seeds: int) -> None:
    """Drawn calls that take any type, on pools of several: how soon they are done, and what it costs."""
    seeds = min(seeds, MOST_SEEDS)
    names = [f"{pool}, {rate:g}/s" for pool, rate in MIXED]
    shown = table(f"arrival to end in s / cost, mixed pools, {seeds} seeds", "policy", *names)
    found = []
    for pool, rate in MIXED:
        with doing(f"mixed, {pool}, {rate:g}/s"):
            found.append(_mixed(pool, rate, seeds))
    for policy in PLACEMENT_POLICIES:
        cells = [figures[policy] for figures in found]
        shown.add_row(policy, *(f"{cell.done_mean_s:.3f} / {cell.cost:.2f}" for cell in cells))
    console.print(shown)


def _mixed(pool: str, rate: float, seeds: int) -> dict[str, Result]:
    wanted = Synthetic(calls=MIXED_CALLS, rate_per_s=rate, shares=(100, 250, 500))
    drawn = Experiment(
        lambda seed: draw(replace(wanted, seed=seed)), load_pool(pool), PLACEMENT_POLICIES, Rules(), seeds
    )
    return {result.policy: result for result in run_experiment(drawn)}


def _openb(folder: Path, seeds: int) -> dict[str, float]:
    nodes, tasks = openb.read_nodes(folder), openb.read_tasks(folder)
    found = {}
    for name in PLACEMENT_POLICIES:

        def made(_: Workload, name: str = name) -> Policy:
            return make_policy(name)

        with doing(f"openb, {name}, {seeds} seeds"):
            runs = [openb.fill(nodes, tasks, made, seed) for seed in range(1, seeds + 1)]
        found[name] = mean(run.unallocated for run in runs)
    return found


def _tenants(folder: Path, pool: str, durations: bool) -> dict[str, float]:
    trace = read_trace("tenants", folder, None)
    rules = Rules(idle_s=0.0, durations=durations)
    results = run_experiment(Experiment(lambda seed: trace, load_pool(pool), PLACEMENT_POLICIES, rules))
    return {result.policy: result.gpu_hours for result in results}
