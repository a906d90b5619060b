"""`make bench`: every figure of the platform beside its peers', as a table and as JSON.

Runs the measurements one after the other, each with servers of its own that are stopped before the next.
A missed goal is told in the table and is no failure; the exit status is 1 only if something could not be
measured at all.
"""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console

from dgsf.errors import DgsfError
from loadtests import bulk, calibrate, coldstart, echo, machine, many_functions, store_scale
from loadtests.plan import Plan
from loadtests.remoting import cold, failover, faults, on_cpu, on_sim, over_distance
from loadtests.report import Report, Section, show
from loadtests.wrk import find_wrk

MEASUREMENTS: dict[str, tuple[Callable[[Plan], Section], ...]] = {
    "echo": (echo.measure,),
    "coldstart": (coldstart.measure,),
    "bulk": (bulk.measure,),
    "store": (store_scale.measure, many_functions.measure),
    "remoting": (on_cpu.measure, on_sim.measure, over_distance.measure, cold.measure, failover.measure, faults.measure),
    "remote-cpu": (on_cpu.measure,),
    "remote-sim": (on_sim.measure,),
    "remote-far": (over_distance.measure,),
    "remote-cold": (cold.measure,),
    "failover": (failover.measure,),
    "faults": (faults.measure,),
    "perfmodel": (calibrate.measure,),
}

USUAL = ("echo", "coldstart", "bulk", "store", "remoting", "perfmodel")


@click.command()
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(1, 1000), help="Rounds of each.")
@click.option("--seconds", default=3.0, show_default=True, type=click.FloatRange(1, 600), help="Length of one round.")
@click.option("--only", default=",".join(USUAL), show_default=True, help="Which measurements to make.")
@click.option("--functions", default=10_000, show_default=True, type=click.IntRange(1), help="Functions in the store.")
@click.option("--calls", default=1_000_000, show_default=True, type=click.IntRange(1), help="Past calls in the store.")
@click.option("--patience", default=machine.PATIENCE_SECONDS, show_default=True, help="Seconds to wait for quiet.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Where the JSON goes.")
def main(
    rounds: int, seconds: float, only: str, functions: int, calls: int, patience: float, json_path: Path | None
) -> None:
    """Measure the platform beside its peers."""
    wanted = _wanted(only)
    console, progress = Console(width=None if sys.stdout.isatty() else 140), Console(stderr=True, highlight=False)
    began = time.monotonic()

    def say(text: str) -> None:
        progress.print(f"[dim]{time.monotonic() - began:6.1f} s[/]  {text}", soft_wrap=True)

    with tempfile.TemporaryDirectory(prefix="dgsf-b-", ignore_cleanup_errors=True) as folder:
        plan = Plan(rounds, seconds, Path(folder), say, functions, calls)
        report = run(plan, wanted, patience)
    show(report, console)
    path = json_path or Path("bench-results") / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    report.write(path)
    console.print(f"written to {path}", highlight=False)
    sys.exit(1 if report.failures else 0)


def _wanted(only: str) -> list[str]:
    names = [name.strip() for name in only.split(",") if name.strip()]
    unknown = [name for name in names if name not in MEASUREMENTS]
    if unknown or not names:
        raise click.BadParameter(f"choose from {', '.join(MEASUREMENTS)}", param_hint="--only")
    if {"echo", "bulk"} & set(names):
        try:
            find_wrk()
        except DgsfError as error:
            raise click.ClickException(error.message) from None
    return names


def run(plan: Plan, names: list[str], patience: float) -> Report:
    """All of these; one that cannot be made does not stop the others."""
    busy = machine.wait_for_quiet(plan.say, patience)
    quiet = "quiet" if busy <= machine.QUIET_SHARE else "NOT QUIET: do not trust these figures"
    rounds = f"{plan.rounds} of {plan.seconds:g} s, medians"
    report = Report({**machine.describe(), "rounds": rounds, "machine before": f"{busy:.1%} busy, {quiet}"})
    for name in names:
        for measure in MEASUREMENTS[name]:
            plan.say(f"[bold]{name}[/]")
            try:
                report.sections.append(measure(plan))
            except Exception as error:
                report.failures[name] = str(error) or type(error).__name__
                plan.say(f"[red]{name} could not be measured[/]")
                traceback.print_exception(error)
    return report


if __name__ == "__main__":
    main()
