"""What a simulation of `dgsf sim` is made of: policies, pool, rules and calls, from the options of the command line.

It reads files and draws; nothing is simulated here, and nothing is shown but what was chosen for the user.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dgsf.cli.output import human_us
from dgsf.cli.simoptions import DRAWN, TASKS, Options
from dgsf.cli.simshow import reading
from dgsf.core.policies import DEFAULT_PLACEMENT, PLACEMENT_POLICIES
from dgsf.errors import UsageError

if TYPE_CHECKING:
    from dgsf.core.placement import Speeds
    from dgsf.core.placement.consolidate import MoveRules
    from dgsf.sim.experiment import Experiment
    from dgsf.sim.pools import PoolSpec
    from dgsf.sim.remoted import Remoted
    from dgsf.sim.workload import FunctionSpec, Workload

FABRIC_MIB_PER_S = 1200.0
_SHARE = re.compile(r"0*[0-9]{1,4}")
MIB_PER_S = 2**20 / 1e6  # in bytes per µs


def experiment(options: Options, changes: Mapping[str, float], remoted: Remoted | None) -> Experiment:
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
    anew: Mapping[str, float | Remoted] = changes if remoted is None else {**changes, "remoted": remoted}
    return Experiment(_workload(options, anew), pool, policies, rules, options.seeds)


def _speeds(options: Options) -> Speeds | None:
    from dgsf.speedtable import read_speeds

    return None if options.speeds is None else read_speeds(options.speeds, "--speeds")


def _policies(given: tuple[str, ...]) -> tuple[str, ...]:
    named = tuple(word.strip() for words in given for word in words.split(","))
    if named == ("all",):
        return PLACEMENT_POLICIES
    for name in named:
        if named.count(name) > 1:
            raise UsageError(f"--policy: {name} is named {named.count(name)} times; name it once")
        if name not in PLACEMENT_POLICIES:
            there_are = f"there are: {', '.join(PLACEMENT_POLICIES)}; or 'all' alone, for all of them"
            raise UsageError(f"--policy: no placement policy '{name}'; {there_are}")
    return named or (DEFAULT_PLACEMENT,)


def _move_rules(options: Options) -> MoveRules | None:
    from dgsf.core.placement.consolidate import MoveRules

    if not options.moves:
        return None
    return MoveRules(per_hour=options.moves, copy_s=options.move_copy_s, pause_s=options.move_pause_s)


def _workload(options: Options, changes: Mapping[str, float | Remoted]) -> Callable[[int], Workload]:
    if options.arrivals not in DRAWN:
        trace = _trace(options)
        trace = trace.changed(**changes) if changes else trace
        return lambda seed: trace
    from dgsf.sim.synthetic import Synthetic, draw

    wanted = Synthetic(
        calls=options.calls or 0, rate_per_s=options.rate, functions=options.functions, tenants=options.tenants,
        mean_run_s=options.run_s, shares=_shares(options.share or ""), burst_s=options.burst_s, seed=options.seed,
        burst=options.burst if options.arrivals == "bursts" else 1.0,
    )  # fmt: skip
    return lambda seed: draw(dataclasses.replace(wanted, seed=seed)).changed(**changes)


def _shares(words: str) -> tuple[int, ...]:
    found = tuple(word.strip() for word in words.split(","))
    if not all(_SHARE.fullmatch(word) and 1 <= int(word) <= 1000 for word in found):
        raise UsageError(
            f"--share {words[:40]!r}: write whole numbers from 1 to 1000, in thousandths of a device, such as 250 or "
            "100,250,500"
        )
    return tuple(int(word) for word in found)


def _trace(options: Options) -> Workload:
    from dgsf.sim.traces import Source, read_source

    assert options.trace_file is not None
    with reading(options.trace_file) as tell:
        source = Source(options.trace_file, options.calls, options.tenant_per_group, tell)
        trace = read_source(options.arrivals, source)
    trace = trace if options.share is None else trace.sharing(_shares(options.share))
    return trace if options.speedup == 1.0 else trace.faster(options.speedup)


def settle_remoting(options: Options) -> tuple[Options, dict[str, float], Remoted | None]:
    """The options with what was measured, and what is set anew for every function: needs, what the fabric costs."""
    given = {"duty": options.duty, "weights_mib": options.weights_mib, "work_mib": options.memory_mib}
    changes = {name: value for name, value in given.items() if value is not None}
    if options.recording is None:
        return options, changes, None
    remoted = _remoted(options, options.recording)
    speed, reads = remoted.link.bytes_per_us / MIB_PER_S, remoted.link.outstanding_reads
    return dataclasses.replace(options, link_mib_per_s=speed, outstanding_reads=reads), changes, remoted


def _remoted(options: Options, file: Path) -> Remoted:
    """The recording over the link that the options and the recording say; which it is goes to stderr."""
    from dgsf.core.perfmodel import Link
    from dgsf.sim.recordings import load_recording
    from dgsf.sim.remoted import Remoted

    recording = load_recording(file)
    link = recording.link or Link(bytes_per_us=FABRIC_MIB_PER_S * MIB_PER_S)
    speed = link.bytes_per_us if options.link_mib_per_s is None else options.link_mib_per_s * MIB_PER_S
    reads = link.outstanding_reads if options.outstanding_reads is None else options.outstanding_reads
    link = dataclasses.replace(link, round_trip_us=options.round_trip_us, bytes_per_us=speed, outstanding_reads=reads)
    costs = f"as measured with the recording, {human_us(round(link.sync_us))} per answer beside the round trip"
    counted = costs if recording.link else "not counted, the recording does not say; 'dgsf profile' makes one that does"
    click.echo(f"costs of commands and answers over the fabric: {counted}", err=True)
    return Remoted(recording, link, options.attach)


def tell_attach(options: Options, pool: PoolSpec, remoted: Remoted) -> dict[str, str]:
    """Where bodies run on each type of the pool, and why, on stderr; the answer is what a report says of it."""
    types = [] if options.arrivals in TASKS else [node.type for node in pool.nodes if node.devices]
    speeds = {type_: pool.figures(type_).speed for type_ in types} or {"": 1.0}  # tasks take as long on every type
    where = {type_: f" on {type_}" if len(speeds) > 1 else "" for type_ in speeds}
    for type_, speed in speeds.items():
        click.echo(f"attach {remoted.attach(speed)}{where[type_]}: {remoted.choice(speed).reason}", err=True)
    if options.speeds is not None:
        click.echo("with --speeds, that is chosen by how fast each function runs on a type", err=True)
    return {
        "attach": ", ".join(remoted.attach(speed) + where[type_] for type_, speed in speeds.items()),
        "slowdown": ", ".join(f"{remoted.slowdown(speed):g}{where[type_]}" for type_, speed in speeds.items()),
    }


def facts(options: Options, wanted: Experiment) -> dict[str, object]:
    """Of the functions, what the report repeats: those that are drawn are alike in this."""
    kinds = wanted.workload(options.seed).functions
    told = {"weights_mib": "weights_mib", "memory_mib": "work_mib", "duty": "duty", "share": "share"}
    found = {name: sorted({getattr(kind, field) for kind in kinds}) for name, field in told.items()}
    elsewhere = {"duty", "share"} if options.exclusive else {"share"} if options.arrivals in TASKS else set()
    return {name: values for name, values in found.items() if name not in elsewhere}


# --- what would be ignored, seen only with the calls at hand ------------------------------------
def refuse_what_nobody_uses(options: Options, wanted: Experiment) -> None:
    """Speeds of functions or types that are not there, and moves where nothing can move."""
    kinds = wanted.workload(options.seed).functions
    if options.speeds is not None:
        _check_speeds(options.speeds, [kind.name for kind in kinds], wanted.pool)
    if options.moves:
        _check_movers(kinds, wanted.policies)


def _check_speeds(file: Path, functions: list[str], pool: PoolSpec) -> None:
    """A table counts where it has a type of the pool, beside the one that sets the level, for a function of the run."""
    from dgsf.sim.truespeeds import level_of

    assert pool.speeds is not None
    types = {node.type.lower() for node in pool.nodes if node.devices}
    tables = [table for name in functions if (table := pool.speeds.stated(name))]
    if any(types.intersection(table) - {level_of(table, pool)} for table in tables):
        return
    if tables:
        told = f"it compares no type of this pool ({', '.join(sorted(types))}) with another for a function of this run"
    else:
        some = ", ".join(functions[:3]) + (", ..." if len(functions) > 3 else "")
        told = f"it has none of the functions of this run ({some})"
    raise UsageError(f"--speeds {file} would be ignored: {told}")


def _check_movers(kinds: list[FunctionSpec], policies: Sequence[str]) -> None:
    """Only parts of a device move, and slices do not; beside policies that make none, that is told."""
    from dgsf.core.placement import make_policy
    from dgsf.core.placement.slices import Conspirator

    if not any(0 < kind.share < 1000 and not kind.devices for kind in kinds):
        raise UsageError("--moves would be ignored: only calls that take a part of a device move; leave it out")
    still = " and ".join(name for name in policies if isinstance(make_policy(name), Conspirator))
    if all(isinstance(make_policy(name), Conspirator) for name in policies):
        raise UsageError(f"--moves would be ignored: {still} cuts slices, which do not move; leave it out")
    if still:
        click.echo(f"--moves: nothing moves under {still}, whose slices stay where they are", err=True)
