"""Runs one workload under several policies and seeds, and keeps what came out.

A workload that is drawn is drawn anew for each seed; a trace stays the same and only placement and failures vary.
Policies see the same draws, so that their difference is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dgsf.core.placement import make_policy
from dgsf.errors import UsageError
from dgsf.sim.engine import Simulator
from dgsf.sim.pools import PoolSpec
from dgsf.sim.result import Result, mean_of, summarise
from dgsf.sim.rules import Rules
from dgsf.sim.workload import Workload

Progress = Callable[[str, int, int, int], None]  # policy, seed, calls done, of how many


@dataclass(frozen=True, slots=True)
class Experiment:
    """What to run."""

    workload: Callable[[int], Workload]  # by seed
    pool: PoolSpec
    policies: Sequence[str]
    rules: Rules
    seeds: int = 1


def run_experiment(wanted: Experiment, progress: Progress | None = None) -> list[Result]:
    """One result per policy: the mean over the seeds."""
    if not wanted.policies or wanted.seeds < 1:
        raise UsageError("a simulation needs at least one policy and one seed")
    for name in wanted.policies:
        make_policy(name)  # a wrong name is told before anything runs
    found: dict[str, list[Result]] = {name: [] for name in wanted.policies}
    for number in range(wanted.seeds):
        seed = wanted.rules.seed + number
        workload = wanted.workload(seed)
        for name in found:
            run = Simulator(workload, wanted.pool, name, replace(wanted.rules, seed=seed))
            tell = None if progress is None else _teller(progress, name, seed, workload.calls)
            if tell is not None:
                tell(0)
            found[name].append(summarise(run.run(tell)))
    return [mean_of(results) for results in found.values()]


def _teller(progress: Progress, name: str, seed: int, calls: int) -> Callable[[int], None]:
    return lambda done: progress(name, seed, done, calls)


def sharing_against_exclusive(wanted: Experiment, progress: Progress | None = None) -> tuple[Result, Result]:
    """The first policy with shared devices, and with a whole device for every call."""
    alone = replace(wanted, policies=wanted.policies[:1])
    shared = run_experiment(alone, progress)[0]
    exclusive = run_experiment(replace(alone, rules=replace(wanted.rules, exclusive=True)), progress)[0]
    return shared, exclusive
