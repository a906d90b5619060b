"""`dgsf sim`: replay traces or drawn calls over a pool that does not exist, and compare placement policies.

It reads options, builds an experiment and shows results; the simulation itself is `dgsf.sim`.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from dgsf.cli.output import human_us, json_option, show_json, show_rows
from dgsf.cli.simoptions import DRAWN, TRACES, Options, assumed, settled
from dgsf.cli.simplan import check_planner, describe, planned_hours, prepare
from dgsf.core.policies import DEFAULT_PLACEMENT, PLACEMENT_POLICIES
from dgsf.errors import UsageError

if TYPE_CHECKING:
    from dgsf.core.perfmodel import Link
    from dgsf.core.placement import Speeds
    from dgsf.core.placement.consolidate import MoveRules
    from dgsf.sim.experiment import Experiment, Progress
    from dgsf.sim.pools import PoolSpec
    from dgsf.sim.result import Result
    from dgsf.sim.workload import Workload

MOST_CALLS = 100_000_000
MOST_NAMES = 100_000  # functions or tenants that are drawn
MOST = 1e9  # of anything that is measured: seconds, hours, µs, calls per second
LEAST = 1e-6  # of what must be above 0
FABRIC_MIB_PER_S = 1200.0
MIB_PER_S = 2**20 / 1e6  # in bytes per µs
COLUMNS_HELP = """\b
Columns of your own CSV file (with a header line, in any order; others are skipped):
  tenants  name, tenant, arrival_s, duration_s, gpu_percent (1 to 100)
           tasks that take a part of one device, in the order of arrival
  openb    name, cpu_milli, memory_mib, num_gpu, gpu_milli (0 to 1000 of one
           device), gpu_spec (types: 'T4|A100', or empty), qos (the tenant, or
           empty), creation_time, deletion_time (seconds)
           tasks that take parts of a device or several devices
  genai    gmt_create (date and time), exec_time_seconds, groupId (the tenant),
           checkpoint_model_version_id (the function)
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
    help="mean run time of drawn calls, seconds",
)
@click.option(
    "--share", default="100,250,500", show_default=True, help="thousandths of a device, drawn functions in turn"
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
    "--recording", type=click.Path(path_type=Path), help="device commands of a run (JSON lines): calls are remoted"
)
@click.option(
    "--attach",
    type=click.Choice(("auto", "near", "fabric")),
    default="auto",
    show_default=True,
    help="where bodies run, with --recording; auto: over the fabric unless it costs more than a tenth",
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
    type=click.IntRange(0),
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
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="the first seed")
@click.option(
    "--idle-s", type=click.FloatRange(0, MOST), help="warm instances stay so long (60; 0 for openb and tenants)"
)
@click.option(
    "--keep-warm",
    metavar="learned|fixed:N",
    help="instead of --idle-s: production's DGSF_KEEP_WARM; learned: what stays and what is started ahead follows from "
    "past calls, for no more device time than 60 s each would cost (slow: asked up to twice per simulated second)",
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
    "--slo-s", type=click.FloatRange(0, MOST), default=0.0, help="a call must end within so long; 0: 3 x its own run"
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
    from dgsf.sim.experiment import run_experiment
    from dgsf.sim.plots import check_drawing

    check_drawing(plot, html)
    options = settled(Options(**given), _written(given))
    check_planner(options.planned)
    two_ways = options.against_exclusive
    options, changes = _changes(options)
    wanted = _experiment(options, changes)
    _tell_assumed_types(wanted.pool)
    plan = prepare(wanted.workload(options.seed)) if options.planned else None
    runs = wanted.seeds * (2 if two_ways else len(wanted.policies))
    with _progress(runs) as tell:
        results = _two_ways(wanted, tell) if two_ways else run_experiment(wanted, tell)
    title = f"{options.arrivals} on {wanted.pool.name}: {results[0].calls:,} calls, {wanted.pool.devices:,} devices"
    planned = None if plan is None else planned_hours(plan, results[0].calls, options.seed)
    _show(results, title, as_json, planned)
    if two_ways and not as_json:
        _show_ratio(*results)
        _show_sharing(options)
    found = {"calls": results[0].calls, "policies": wanted.policies, "duty": _duties(options, wanted), **changes}
    notes = [] if planned is None else [describe(planned, results[0].policy, results[0].gpu_hours)]
    _write(results, title, plot, html, assumed(options, wanted.rules, found), notes)


def _written(names: Iterable[str]) -> set[str]:
    """Which of these options the user wrote."""
    context = click.get_current_context()
    return {name for name in names if context.get_parameter_source(name) is not ParameterSource.DEFAULT}


def _write(
    results: list[Result], title: str, plot: Path | None, html: Path | None, told: dict[str, str], notes: list[str]
) -> None:
    if plot is not None:
        from dgsf.sim.plots import save_plot

        save_plot(plot, results, title)
    if html is not None:
        from dgsf.sim.html import save_html

        save_html(html, results, title, told, notes)


# --- what to run ------------------------------------------------------------------------------
def _experiment(options: Options, changes: dict[str, float]) -> Experiment:
    from dgsf.sim.experiment import Experiment
    from dgsf.sim.pools import load_pool
    from dgsf.sim.rules import Rules

    policies = _policies(options.policies)
    if options.against_exclusive and len(policies) > 1:
        raise UsageError("--against-exclusive compares one policy in two ways; give just one with --policy")
    rules = Rules(
        idle_s=options.idle_s or 0.0, learned=options.keep_warm == "learned",
        mtbf_h=options.mtbf_h, mttr_s=options.mttr_s,
        interference=options.interference or 0.0,
        slo_s=options.slo_s, fair=not options.fifo, exclusive=options.exclusive,
        durations=options.durations, moves=_move_rules(options), seed=options.seed,
    )  # fmt: skip
    pool = dataclasses.replace(load_pool(options.pool), speeds=_speeds(options))
    return Experiment(_workload(options, changes), pool, policies, rules, options.seeds)


def _speeds(options: Options) -> Speeds | None:
    from dgsf.speedtable import read_speeds

    return None if options.speeds is None else read_speeds(options.speeds, "--speeds")


def _policies(given: tuple[str, ...]) -> tuple[str, ...]:
    named = tuple(word.strip() for words in given for word in words.split(","))
    if named == ("all",):
        return PLACEMENT_POLICIES
    for name in named:
        if name not in PLACEMENT_POLICIES:
            there_are = f"there are: {', '.join(PLACEMENT_POLICIES)}; or 'all' alone, for all of them"
            raise UsageError(f"--policy: no placement policy '{name}'; {there_are}")
    return named or (DEFAULT_PLACEMENT,)


def _move_rules(options: Options) -> MoveRules | None:
    from dgsf.core.placement.consolidate import MoveRules

    if not options.moves:
        return None
    return MoveRules(per_hour=options.moves, copy_s=options.move_copy_s, pause_s=options.move_pause_s)


def _workload(options: Options, changes: dict[str, float]) -> Callable[[int], Workload]:
    if options.arrivals not in DRAWN:
        trace = _trace(options)
        trace = trace.changed(**changes) if changes else trace
        return lambda seed: trace
    from dgsf.sim.synthetic import Synthetic, draw

    wanted = Synthetic(
        calls=options.calls or 0, rate_per_s=options.rate, functions=options.functions, tenants=options.tenants,
        mean_run_s=options.run_s, shares=_shares(options.share), burst_s=options.burst_s, seed=options.seed,
        burst=options.burst if options.arrivals == "bursts" else 1.0,
    )  # fmt: skip
    return lambda seed: draw(dataclasses.replace(wanted, seed=seed)).changed(**changes)


def _shares(words: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) if word.strip().isdecimal() else 0 for word in words.split(","))
    except ValueError:  # thousands of digits
        raise UsageError(f"--share {words!r}: write whole numbers from 1 to 1000, such as 250 or 100,250,500") from None


def _trace(options: Options) -> Workload:
    from dgsf.sim.traces import read_trace

    trace = read_trace(options.arrivals, Path(), options.trace_file)
    trace = trace.first(options.calls) if options.calls else trace
    return trace if options.speedup == 1.0 else trace.faster(options.speedup)


def _changes(options: Options) -> tuple[Options, dict[str, float]]:
    """The options with what was chosen, and what is set anew for every function: duty, slow-down over the fabric."""
    changes = {} if options.duty is None else {"duty": options.duty}
    if options.recording is None:
        return options, changes
    attach, slowdown, link = _remoting(options, options.recording)
    speed, reads = link.bytes_per_us / MIB_PER_S, link.outstanding_reads
    chosen = dataclasses.replace(options, attach=attach, link_mib_per_s=speed, outstanding_reads=reads)
    return chosen, {**changes, "slowdown": slowdown}


def _remoting(options: Options, file: Path) -> tuple[str, float, Link]:
    """Where bodies run, remoted over native, and the link; what was chosen and why goes to stderr."""
    from dgsf.core.perfmodel import Link, choose_attach
    from dgsf.sim.recordings import load_recording

    recording = load_recording(file)
    link = recording.link or Link(bytes_per_us=FABRIC_MIB_PER_S * MIB_PER_S)
    speed = link.bytes_per_us if options.link_mib_per_s is None else options.link_mib_per_s * MIB_PER_S
    reads = link.outstanding_reads if options.outstanding_reads is None else options.outstanding_reads
    link = dataclasses.replace(link, round_trip_us=options.round_trip_us, bytes_per_us=speed, outstanding_reads=reads)
    choice = choose_attach(recording, link)
    attach = choice.attach if options.attach == "auto" else options.attach
    costs = f"as measured with the recording, {human_us(round(link.sync_us))} per answer beside the round trip"
    counted = costs if recording.link else "not counted, the recording does not say; 'dgsf profile' makes one that does"
    click.echo(f"attach {attach}: {choice.reason} (costs of commands and answers: {counted})", err=True)
    return attach, 1.0 if attach == "near" else choice.slowdown, link


def _duties(options: Options, wanted: Experiment) -> list[float]:
    """Of all functions; those that are drawn have one."""
    if options.arrivals in DRAWN:
        from dgsf.sim.synthetic import Synthetic

        return [Synthetic().duty]
    return sorted({function.duty for function in wanted.workload(options.seed).functions})


def _two_ways(wanted: Experiment, tell: Progress | None) -> list[Result]:
    from dgsf.sim.experiment import sharing_against_exclusive

    shared, exclusive = sharing_against_exclusive(wanted, tell)
    return [dataclasses.replace(shared, policy="shared"), dataclasses.replace(exclusive, policy="exclusive")]


# --- what is shown ----------------------------------------------------------------------------
def _show(results: list[Result], title: str, as_json: bool, planned: float | None) -> None:
    from dgsf.sim.report import rows

    if as_json:
        more = {} if planned is None else {"planned_gpu_hours": planned}
        show_json({"results": [dataclasses.asdict(result) for result in results], **more})
        return
    click.secho(title, bold=True)
    show_rows(rows(results), ("figure", *(result.policy for result in results)), empty="")
    if planned is not None:
        click.echo(describe(planned, results[0].policy, results[0].gpu_hours))


def _tell_assumed_types(pool: PoolSpec) -> None:
    """Types of a file that nothing is known of, on stderr: they change speeds and costs."""
    from dgsf.sim.devicetypes import STAND_IN, TYPES

    if pool.assumed:
        stand_in = f"a {STAND_IN} ({TYPES[STAND_IN]})"
        click.echo(
            f"{', '.join(pool.assumed)}: no figures are known of these types, each counts as {stand_in}", err=True
        )


def _show_sharing(options: Options) -> None:
    """What the comparison stands on: without these, sharing would cost nothing."""
    click.echo(
        f"assumed of calls that share a device: each needs it for itself for {options.duty:g} of its run (--duty), and "
        f"is slowed by {options.interference:g} by each call beside it (--interference)"
    )


def _show_ratio(shared: Result, exclusive: Result) -> None:
    if exclusive.wait_mean_s == 0:
        click.echo("nobody waited with exclusive devices: there is nothing to gain; raise --rate")
        return
    ratio = shared.wait_mean_s / exclusive.wait_mean_s
    click.echo(f"queueing delay with sharing ÷ exclusive devices: {ratio:.3f} (DGSF: 0.47)")


@contextmanager
def _progress(runs: int) -> Iterator[Progress | None]:
    """A bar on a terminal; nothing otherwise."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("simulating", total=None)
        seen: list[tuple[str, int]] = []

        def tell(policy: str, seed: int, done: int, calls: int) -> None:
            if not seen or seen[-1] != (policy, seed):
                seen.append((policy, seed))
            bar.update(task, description=f"{policy}, seed {seed} ({len(seen)}/{runs})", completed=done, total=calls)

        yield tell
