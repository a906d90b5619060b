"""The default policy beside all others: openb, and the tenants with and without expected durations.

Every policy is made by its name, as production makes it, and learns only from what arrives.  The last column says how
far a policy is from the best of the others; the default should never be more than 1 % above them.
"""

from __future__ import annotations

from pathlib import Path
from statistics import mean

from dgsf.core.placement import Policy, Workload, make_policy
from dgsf.core.policies import DEFAULT_PLACEMENT, PLACEMENT_POLICIES
from dgsf.sim import openb
from dgsf.sim.experiment import Experiment, run_experiment
from dgsf.sim.pools import load_pool
from dgsf.sim.rules import Rules
from dgsf.sim.traces import read_trace
from loadtests.placement_tables import console, table
from loadtests.progress import doing

POOLS = ("T4:64x1", "T4:8x8")
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
