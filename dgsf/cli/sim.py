"""`dgsf sim`: replay traces or drawn calls over a pool that does not exist, and compare placement policies.

The options, and the order of what is done; what they come to is `simoptions`, the experiment `simrun`, the output
`simshow`, and the simulation itself `dgsf.sim`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from dgsf.cli.output import json_option
from dgsf.cli.simoptions import DRAWN, TRACES, Options, assumed, settled
from dgsf.cli.simplan import check_planner, describe, make_plan, prepare
from dgsf.cli.simrun import experiment, facts, refuse_what_nobody_uses, settle_remoting, tell_attach
from dgsf.cli.simshow import (
    Report,
    progress_bar,
    refusals,
    sharing_notes,
    show,
    tell_assumed_types,
    write_files,
)
from dgsf.core.counting import counted
from dgsf.errors import UsageError

if TYPE_CHECKING:
    from dgsf.sim.experiment import Experiment, Progress
    from dgsf.sim.result import Result

MOST_CALLS = 10_000_000  # about a gigabyte
MOST_NAMES = 100_000  # functions or tenants that are drawn
MOST = 1e9  # of anything that is measured: seconds, hours, µs, calls per second, MiB
MOST_READS = 1_000_000  # 4 GiB under way
MOST_SEED = 2**63 - 1
LEAST = 1e-6  # of what must be above 0
COLUMNS_HELP = """\b
Columns of your own CSV file (with a header line, in any order; others are skipped):
  tenants  name, tenant, arrival_s, duration_s, gpu_percent (1 to 100)
           tasks that take a part of one device, in the order of arrival
  openb    name, cpu_milli, memory_mib, num_gpu, gpu_milli (0 to 1000 of one
           device), gpu_spec (types: 'T4|A100', or empty), qos (the tenant, or
           empty), creation_time, deletion_time (seconds)
           tasks that take parts of a device or several devices
  genai    gmt_create (date and time), exec_time_seconds, groupId (a user, or with
           --tenant-per-group a tenant), checkpoint_model_version_id (the function)
           calls of functions, in the order of arrival
  azure    TIMESTAMP (date and time), ContextTokens, GeneratedTokens
           calls of one language model, in the order of arrival
  --pool   sn (name of the node), cpu_milli, memory_mib, gpu (how many), model
Dates and times are written like 2024-01-31 13:45:00; cpu_milli is 1000 per core.
"""


@click.command("sim", epilog=COLUMNS_HELP)
@click.option(
    "--pool",
    default="T4:64",
    show_default=True,
    help="'A100:8,T4:16', 'A100:4x8@96' (nodes x devices @ cores), 'B200=192/10/6.50:8' (GiB / speed beside a T4 / "
    "price per hour, for types that are not known) or nodes.csv",
)
@click.option(
    "--arrivals", type=click.Choice((*DRAWN, *TRACES)), default="bursts", show_default=True, help="drawn, or a trace"
)
@click.option(
    "--trace-file",
    type=click.Path(path_type=Path),
    help="your own CSV file, or a trace that is not in the folder; --arrivals is known by its columns, see below",
)
@click.option(
    "--tenant-per-group",
    is_flag=True,
    help="genai: each groupId is a tenant with functions and instances of its own, not a user of one tenant's",
)
@click.option("--traces", type=click.Path(path_type=Path), help="folder with the public traces  [env: DGSF_TRACES]")
@click.option(
    "--calls",
    type=click.IntRange(1, MOST_CALLS),
    help="calls to draw (10,000), or to take of a trace (all)",
)
@click.option(
    "--speedup",
    type=click.FloatRange(LEAST, MOST),
    default=1.0,
    help="calls of a trace arrive so many times faster",
)
@click.option(
    "--rate", type=click.FloatRange(LEAST, MOST), default=20.0, show_default=True, help="drawn calls per second, mean"
)
@click.option("--functions", type=click.IntRange(1, MOST_NAMES), default=20, show_default=True, help="drawn functions")
@click.option("--tenants", type=click.IntRange(1, MOST_NAMES), default=4, show_default=True, help="drawn tenants")
@click.option(
    "--run-s",
    type=click.FloatRange(LEAST, MOST),
    default=2.0,
    show_default=True,
    help="mean of the drawn functions' run times, seconds (each has its own; some are called more than others)",
)
@click.option(
    "--share",
    help="thousandths of a device, functions in turn (drawn: 100,250,500, genai: 125, azure: 1000)",
)
@click.option(
    "--weights-mib",
    type=click.FloatRange(0, MOST),
    help="of each function: cold starts move them, each instance holds them (drawn: 500, genai: 6600, azure: 14000)",
)
@click.option(
    "--memory-mib",
    type=click.FloatRange(0, MOST),
    help="device memory of each instance beside its weights (drawn: 500, genai: 3400, azure: 2000, tasks: 0)",
)
@click.option("--duty", type=click.FloatRange(0, 1), help="part of a run in which it needs the device for itself")
@click.option(
    "--burst",
    type=click.FloatRange(1, 1e6),
    default=4.0,
    show_default=True,
    help="rate in a burst over the mean rate",
)
@click.option(
    "--burst-s",
    type=click.FloatRange(0.001, MOST),
    default=30.0,
    show_default=True,
    help="mean length of a burst, seconds",
)
@click.option(
    "--recording",
    type=click.Path(path_type=Path),
    help="device commands of a run (JSON lines), taken as one on a T4: calls are remoted",
)
@click.option(
    "--attach",
    type=click.Choice(("auto", "near", "fabric")),
    default="auto",
    show_default=True,
    help="where bodies run, with --recording; auto: for each type of device, over the fabric unless it costs more than "
    "a tenth",
)
@click.option(
    "--round-trip-us",
    type=click.FloatRange(0, MOST),
    default=50.0,
    show_default=True,
    help="of the fabric, with --recording",
)
@click.option(
    "--link-mib-per-s",
    type=click.FloatRange(0.001, MOST),
    help="of the fabric, with --recording (what was measured with it, or 1200)",
)
@click.option(
    "--outstanding-reads",
    type=click.IntRange(0, MOST_READS),
    help="read requests of 4 KiB that the fabric has under way at once, with --recording; 0: no limit (what was "
    "measured with it, or no limit)",
)
@click.option(
    "--speeds",
    type=click.Path(path_type=Path),
    help="JSON file: function -> device type -> speed, or Gavel's table; functions run so, and placement knows it",
)
@click.option("--policy", "policies", multiple=True, help="placement policies to compare: a,b,c or 'all'")
@click.option("--seeds", type=click.IntRange(1, 1000), default=1, show_default=True, help="runs to take the mean of")
@click.option("--seed", type=click.IntRange(0, MOST_SEED), default=0, show_default=True, help="the first seed")
@click.option(
    "--idle-s",
    type=click.FloatRange(0, MOST),
    help="warm instances stay so long (60; 0 for openb and tenants); what stays after the last call is told apart",
)
@click.option(
    "--keep-warm",
    metavar="learned|fixed:N",
    help="instead of --idle-s: production's DGSF_KEEP_WARM; learned: what stays and what is started ahead follows from "
    "past calls, for about the device time that 60 s each would cost; 67 device-minutes are lent to begin with (slow: "
    "asked up to twice per simulated second)",
)
@click.option(
    "--mtbf-h", type=click.FloatRange(0, MOST), default=0.0, help="mean hours between failures of a device; 0: none"
)
@click.option(
    "--mttr-s", type=click.FloatRange(0.001, MOST), default=600.0, show_default=True, help="mean seconds to repair"
)
@click.option(
    "--interference",
    type=click.FloatRange(0, 10),
    help="slow-down by each call beside it (0; 0.05 with --against-exclusive)",
)
@click.option(
    "--slo-s",
    type=click.FloatRange(0, MOST),
    default=0.0,
    help="a call must end within so long, and placement knows; 0: 3 x its own run",
)
@click.option("--fifo", is_flag=True, help="first come, first served, instead of fairness between tenants")
@click.option("--durations", is_flag=True, help="placement knows how long tasks run (openb, tenants)")
@click.option(
    "--moves",
    type=click.FloatRange(0, 1e6),
    default=0.0,
    help="running calls that may move per hour, to give devices up",
)
@click.option(
    "--move-copy-s",
    type=click.FloatRange(0, MOST),
    default=10.0,
    show_default=True,
    help="both devices hold a call that moves",
)
@click.option(
    "--move-pause-s",
    type=click.FloatRange(0, MOST),
    default=1.0,
    show_default=True,
    help="a call that moves stands still",
)
@click.option("--exclusive", is_flag=True, help="every call gets a whole device")
@click.option("--against-exclusive", is_flag=True, help="compare sharing with a whole device for every call")
@click.option(
    "--planned", is_flag=True, help="also plan all tasks beforehand, never moving: the fewest GPU hours found (tenants)"
)
@click.option("--plot", type=click.Path(path_type=Path), help="draw the comparison into a .png, .svg or .pdf file")
@click.option("--html", type=click.Path(path_type=Path), help="write the whole report as one HTML file")
@json_option
def command(plot: Path | None, html: Path | None, as_json: bool, **given: Any) -> None:
    """Simulate a pool: replay a trace or drawn calls, compare placement policies."""
    from dgsf.sim.plots import check_drawing

    check_drawing(plot, html)
    options = settled(Options(**given), _written(given))
    check_planner(options.planned)
    try:
        report = _simulated(options)
    except MemoryError:
        raise UsageError(
            "so much does not fit in this machine's memory; take fewer --calls or a smaller --pool"
        ) from None
    try:
        show(report, as_json=as_json)
    finally:  # whoever reads the table may stop reading
        write_files(report, plot, html)


def _written(names: Iterable[str]) -> set[str]:
    """Which of these options the user wrote."""
    context = click.get_current_context()
    return {name for name in names if context.get_parameter_source(name) is not ParameterSource.DEFAULT}


def _simulated(options: Options) -> Report:
    """Runs it; what is wrong is told before anything runs."""
    from dgsf.sim.experiment import run_experiment

    options, changes, remoted = settle_remoting(options)
    wanted = experiment(options, changes, remoted)
    refuse_what_nobody_uses(options, wanted)
    tell_assumed_types(wanted.pool)
    attached = {} if remoted is None else tell_attach(options, wanted.pool, remoted)
    batch = prepare(wanted.workload(options.seed)) if options.planned else None
    two_ways = options.against_exclusive
    runs = wanted.seeds * (2 if two_ways else len(wanted.policies))
    with progress_bar(runs) as tell:
        results = _two_ways(wanted, tell) if two_ways else run_experiment(wanted, tell)
    first = results[0]
    plan = make_plan(batch, options.seed) if options.planned else None
    found = {"calls": first.calls, "policies": wanted.policies, **facts(options, wanted), **changes, **attached}
    notes = refusals(results)
    notes += [] if plan is None else describe(plan, results)
    notes += sharing_notes(options, *results) if two_ways else []
    return Report(_title(options, wanted, first.calls), results, assumed(options, wanted.rules, found), notes, plan)


def _title(options: Options, wanted: Experiment, calls: int) -> str:
    what = "sharing against exclusive devices, " if options.against_exclusive else ""
    size = f"{counted(calls, 'call')}, {counted(wanted.pool.devices, 'device')}"
    return f"{what}{options.arrivals} on {wanted.pool.name}: {size}"


def _two_ways(wanted: Experiment, tell: Progress | None) -> list[Result]:
    from dgsf.sim.experiment import sharing_against_exclusive

    shared, exclusive = sharing_against_exclusive(wanted, tell)
    return [dataclasses.replace(shared, policy="shared"), dataclasses.replace(exclusive, policy="exclusive")]
