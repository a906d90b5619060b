"""`dgsf sim --planned`: what the same tasks would take if all of them were known beforehand.

The plan is made by `dgsf.sim.repack`, which needs numba (extra `sim`).  Every task starts when it arrives and stays
where it is, so the pool's size does not matter, and runs in which calls waited are not compared with it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dgsf.core.counting import counted
from dgsf.errors import UsageError
from dgsf.sim.extra import lacking

if TYPE_CHECKING:
    from dgsf.core.placement.pieces import Interval
    from dgsf.sim.repack import Repacking, Report
    from dgsf.sim.result import Result
    from dgsf.sim.workload import Workload


def check_planner(wanted: bool) -> None:
    """Tells first of all what is missing for a plan."""
    if wanted and importlib.util.find_spec("numba") is None:
        raise lacking("--planned", "numba")


@dataclass(frozen=True, slots=True)
class Batch:
    """Tasks that are to be planned, and what plans them."""

    tasks: Sequence[Interval]
    repacking: Repacking


@dataclass(frozen=True, slots=True)
class Plan:
    """The best plan that was found."""

    gpu_hours: float
    most_gpus: int  # in use at once


def prepare(workload: Workload) -> Batch | None:
    """Tells before a long run what would stop the plan after it; None: there is nothing to plan.

    Tasks that take no time take no device, so they are left out.
    """
    with _compiling():
        from dgsf.sim.repack import Repacking

        Repacking([(0.0, 1.0, 1)]).run(1)  # the first plan on a machine compiles; later ones find that done
    rows = zip(workload.arrival_s, workload.run_s, workload.function, strict=True)
    tasks = [(start, start + run, workload.functions[function].share) for start, run, function in rows]
    lasting = [(start, end, share) for start, end, share in tasks if start < end]
    try:
        return Batch(lasting, Repacking(lasting)) if lasting else None
    except UsageError as error:
        raise UsageError(f"--planned: {error.message}") from None


def make_plan(batch: Batch | None, seed: int) -> Plan:
    if batch is None:
        return Plan(0.0, 0)
    with _progress() as report:
        gpus, in_use_s = batch.repacking.run(seed=seed, report=report)
    return Plan(in_use_s / 3600, _most_at_once(batch.tasks, gpus))


def _most_at_once(tasks: Sequence[Interval], gpus: Sequence[int]) -> int:
    """How many GPUs hold a task at the same time, at most; a task that ends makes room for one that begins then."""
    changes = [(start, 1, gpu) for (start, _, _), gpu in zip(tasks, gpus, strict=True)]
    changes += [(end, -1, gpu) for (_, end, _), gpu in zip(tasks, gpus, strict=True)]
    held: Counter[int] = Counter()
    most = 0
    for _, change, gpu in sorted(changes):
        held[gpu] += change
        if not held[gpu]:
            del held[gpu]
        most = max(most, len(held))
    return most


# --- beside a run -----------------------------------------------------------------------------
def ratios(plan: Plan, results: Sequence[Result]) -> dict[str, float | None]:
    """GPU hours of each policy over those of the plan; None: the two cannot be compared."""
    return {
        result.policy: result.gpu_hours / plan.gpu_hours if plan.gpu_hours and _comparable(result) else None
        for result in results
    }


def _comparable(result: Result) -> bool:
    """A run that lets calls wait or turns them away needs fewer devices at once than any plan."""
    return not (result.wait_max_s or result.refused or result.lost)


def describe(plan: Plan, results: Sequence[Result]) -> list[str]:
    """The plan, what each policy used beside it, and why some are not compared."""
    head = f"planned beforehand, never moving: {plan.gpu_hours:.4g} GPU hours"
    alike = [result for result in results if _comparable(result)]
    used = [f"{result.policy} used {_beside(plan, result)}" for result in alike]
    lines = [f"{head}; {used[0]}", *used[1:]] if used else [head]
    if len(alike) < len(results):
        others = ", ".join(result.policy for result in results if not _comparable(result))
        lines.append(
            f"{others}: calls waited or found no place, so there is no ratio: the plan lets nobody wait and takes no "
            f"account of the pool's size; it needs up to {counted(plan.most_gpus, 'GPU')} at once, the pool "
            f"has {results[0].devices:,}"
        )
    return lines


def _beside(plan: Plan, result: Result) -> str:
    return f"{result.gpu_hours / plan.gpu_hours:.3f} times that" if plan.gpu_hours else f"{result.gpu_hours:.4g}"


@contextmanager
def _compiling() -> Iterator[None]:
    """On a terminal: what takes long the first time."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status("compiling the planner (once)"):
        yield


@contextmanager
def _progress() -> Iterator[Report | None]:
    """A bar on a terminal; nothing otherwise."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("planning", total=None)

        def report(done: int, rounds: int, best: float) -> None:
            bar.update(task, description=f"planning, {best / 3600:.1f} GPU hours", completed=done, total=rounds)

        yield report
