"""`dgsf sim --planned`: what the same tasks would take if all of them were known beforehand.

The plan is made by `dgsf.sim.repack`, which needs numba (extra `sim`).  Every task starts when it arrives and stays
where it is, so the pool's size does not matter.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dgsf.errors import UsageError
from dgsf.sim.extra import lacking

if TYPE_CHECKING:
    from dgsf.sim.repack import Repacking, Report
    from dgsf.sim.workload import Workload


def check_planner(wanted: bool) -> None:
    """Tells first of all what is missing for a plan."""
    if wanted and importlib.util.find_spec("numba") is None:
        raise lacking("--planned", "numba")


def prepare(workload: Workload) -> Repacking | None:
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
        return Repacking(lasting) if lasting else None
    except UsageError as error:
        raise UsageError(f"--planned: {error.message}") from None


def planned_hours(repacking: Repacking | None, seed: int) -> float:
    """GPU hours of the best plan that is found."""
    if repacking is None:
        return 0.0
    with _progress() as report:
        return repacking.run(seed=seed, report=report)[1] / 3600


def describe(hours: float, policy: str, used: float) -> str:
    ratio = f"{used / hours:.3f} times that" if hours else f"{used:.4g}"
    return f"planned beforehand, never moving: {hours:.4g} GPU hours; {policy} used {ratio}"


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
