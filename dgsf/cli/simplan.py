"""`dgsf sim --planned`: what the same tasks would take if all of them were known beforehand.

The plan is made by `dgsf.sim.repack`, which needs numba (extra `sim`).  Every task starts when it arrives and stays
where it is, so the pool's size does not matter.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dgsf.errors import UsageError

if TYPE_CHECKING:
    from dgsf.sim.repack import Report
    from dgsf.sim.workload import Workload

ROUNDS_PER_TASK = 1000


def check_planner() -> None:
    """Tells before a long run what would stop the plan after it."""
    try:
        import dgsf.sim.repack  # noqa: F401
    except ImportError:
        raise UsageError("--planned needs numba, which is in the extra 'sim': pip install 'dgsf[sim]'") from None


def planned_hours(workload: Workload, seed: int) -> float:
    """GPU hours of the best plan that is found."""
    from dgsf.sim.repack import repack

    rows = zip(workload.arrival_s, workload.run_s, workload.function, strict=True)
    tasks = [(start, start + run, workload.functions[function].share) for start, run, function in rows]
    with _progress() as report:
        try:
            return repack(tasks, ROUNDS_PER_TASK * len(tasks), seed, report)[1] / 3600
        except ValueError as error:
            raise UsageError(f"--planned: {error}") from None


def describe(hours: float, policy: str, used: float) -> str:
    ratio = f"{used / hours:.3f} times" if hours else "as much as"
    return f"planned beforehand, never moving: {hours:.4g} GPU hours; {policy} used {ratio} that"


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
