"""The options of `dgsf sim`: which belong together, and what they come to.

An option that would be ignored is refused by its name: whoever gives one expects it to count.  Nothing is simulated
here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dgsf.errors import UsageError

if TYPE_CHECKING:
    from dgsf.sim.rules import Rules

DRAWN = ("poisson", "bursts")
TASKS = ("openb", "tenants")  # traces of tasks: nothing is called twice
TRACES = ("genai", "azure", *TASKS)
DRAWN_CALLS = 10_000
DRAWN_SHARES = "100,250,500"
IDLE_S = 60.0
SHARING_DUTY = 0.5
SHARING_INTERFERENCE = 0.05


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line said."""

    pool: str
    arrivals: str
    trace_file: Path | None
    tenant_per_group: bool
    traces: Path | None
    calls: int | None
    speedup: float
    rate: float
    functions: int
    tenants: int
    run_s: float
    share: str | None
    weights_mib: float | None
    memory_mib: float | None
    duty: float | None
    burst: float
    burst_s: float
    recording: Path | None
    attach: str
    round_trip_us: float
    link_mib_per_s: float | None
    outstanding_reads: int | None
    speeds: Path | None
    policies: tuple[str, ...]
    seeds: int
    seed: int
    idle_s: float | None
    keep_warm: str | None
    mtbf_h: float
    mttr_s: float
    interference: float | None
    slo_s: float
    fifo: bool
    durations: bool
    moves: float
    move_copy_s: float
    move_pause_s: float
    exclusive: bool
    against_exclusive: bool
    planned: bool


@dataclass(frozen=True, slots=True)
class _Belonging:
    """Options that count only for some runs."""

    options: tuple[str, ...]
    counts: Callable[[Options], bool]
    to: str
    way_out: str = "leave it out or add that"


_BELONGINGS = (
    _Belonging(
        ("rate", "functions", "tenants", "run_s"),
        lambda given: given.arrivals in DRAWN,
        "drawn calls (--arrivals poisson or bursts)",
    ),
    _Belonging(("burst", "burst_s"), lambda given: given.arrivals == "bursts", "--arrivals bursts"),
    _Belonging(
        ("trace_file", "traces", "speedup"),
        lambda given: given.arrivals in TRACES,
        f"a trace (--arrivals {', '.join(TRACES)})",
    ),
    _Belonging(
        ("durations",), lambda given: given.arrivals in TASKS, f"a trace of tasks (--arrivals {' or '.join(TASKS)})"
    ),
    _Belonging(
        ("attach", "round_trip_us", "link_mib_per_s", "outstanding_reads"),
        lambda given: given.recording is not None,
        "--recording FILE",
    ),
    _Belonging(("tenant_per_group",), lambda given: given.arrivals == "genai", "--arrivals genai"),
    _Belonging(
        ("share", "weights_mib", "speeds"),
        lambda given: given.arrivals not in TASKS,
        f"functions, which load weights and run faster on faster devices; those of {' and '.join(TASKS)} are tasks, "
        "whose rows say what they take",
        "leave it out",
    ),
    _Belonging(
        ("share", "duty", "interference", "moves"),
        lambda given: not given.exclusive,
        "calls that share devices",
        "leave it out, or --exclusive",
    ),
    _Belonging(("planned",), lambda given: given.arrivals == "tenants", "parts of devices (--arrivals tenants)"),
    _Belonging(("move_copy_s", "move_pause_s"), lambda given: given.moves > 0, "--moves above 0"),
    _Belonging(
        ("keep_warm",),
        lambda given: given.arrivals not in TASKS or given.keep_warm != "learned",
        f"functions that are called again; those of {' and '.join(TASKS)} are tasks",
        "leave it out",
    ),
    _Belonging(("mttr_s",), lambda given: given.mtbf_h > 0, "--mtbf-h above 0"),
)

_UNPLANNED = ("exclusive", "against_exclusive", "duty", "interference", "recording", "mtbf_h")


def settled(options: Options, given: Collection[str]) -> Options:
    """The options as they will be used; `given` are the names of those that the user wrote."""
    _refuse_nan(options)
    if options.trace_file is not None and "arrivals" not in given:
        from dgsf.sim.traces import kind_of

        options = replace(options, arrivals=kind_of(options.trace_file))
    _refuse_ignored(options, given)
    if options.arrivals in TRACES:
        options = replace(options, trace_file=_trace_file(options))
    drawn = options.arrivals in DRAWN
    sharing = options.against_exclusive  # sharing is not free: calls need the device and disturb each other
    return replace(
        options,
        calls=DRAWN_CALLS if options.calls is None and drawn else options.calls,
        share=DRAWN_SHARES if options.share is None and drawn else options.share,
        idle_s=_idle_s(options),
        duty=SHARING_DUTY if options.duty is None and sharing else options.duty,
        interference=_or(options.interference, SHARING_INTERFERENCE if sharing else 0.0),
    )


def _trace_file(options: Options) -> Path:
    from dgsf.config import load_settings
    from dgsf.sim.traces import trace_path

    return trace_path(options.arrivals, load_settings(traces=options.traces).traces, options.trace_file)


def _idle_s(options: Options) -> float:
    """How long idle instances stay; if that is learned, the time that it may cost as much as."""
    if options.keep_warm is None:
        return _or(options.idle_s, 0.0 if options.arrivals in TASKS else IDLE_S)
    from dgsf.config import Settings
    from dgsf.errors import ConfigError

    try:
        return _or(Settings(keep_warm=options.keep_warm).fixed_idle_seconds, IDLE_S)
    except ConfigError as error:
        told = error.message.partition(": ")[2]
        raise UsageError(f"--keep-warm {options.keep_warm!r}: {told}") from None


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _refuse_nan(options: Options) -> None:
    """It is within no limits, but no comparison with a limit says so."""
    for name, value in asdict(options).items():
        if isinstance(value, float) and math.isnan(value):
            raise UsageError(f"{_flag(name)} nan: is not a number")


def _refuse_ignored(options: Options, given: Collection[str]) -> None:
    for each in _BELONGINGS:
        ignored = [] if each.counts(options) else [name for name in each.options if name in given]
        if ignored:
            raise UsageError(f"{_flag(ignored[0])} would be ignored: it belongs to {each.to}; {each.way_out}")
    if options.trace_file is not None and options.traces is not None:
        raise UsageError("--traces would be ignored: --trace-file names the file itself; leave one of the two out")
    if options.idle_s is not None and options.keep_warm is not None:
        raise UsageError("--idle-s would be ignored: --keep-warm says what stays; leave one of the two out")
    for name in _UNPLANNED if options.planned else ():
        if getattr(options, name):
            told = "a plan knows only tasks that share devices which never fail, and that do not slow each other down"
            raise UsageError(f"--planned cannot be compared with {_flag(name)}: {told}; leave one of the two out")
    if options.against_exclusive and options.exclusive:
        raise UsageError("--against-exclusive compares both; leave out --exclusive")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


# --- what a report says of them ---------------------------------------------------------------
_TOLD_ELSEWHERE = {
    "calls",
    "policies",
    "duty",
    "weights_mib",
    "memory_mib",
    "moves",
    "move_copy_s",
    "move_pause_s",
    "fifo",
    "traces",
}


def assumed(options: Options, rules: Rules, found: Mapping[str, object]) -> dict[str, str]:
    """All that a run was made of, in words: options that counted, what was found out, and the simulator's own rules."""
    ignored = {name for each in _BELONGINGS if not each.counts(options) for name in each.options}
    counted = {
        name: value
        for name, value in asdict(options).items()
        if name not in ignored | _TOLD_ELSEWHERE | set(found) and value is not None
    }
    own = {name: value for name, value in asdict(rules).items() if name not in counted and name not in ignored}
    moves = own.pop("moves", None) or {}  # --exclusive rules them out
    moved = {f"moves: {name}": value for name, value in moves.items()}
    told = {**counted, **found, **own, "moves": bool(moves), **moved, **_in_place_of_zero(rules)}
    return {name: _word(value) for name, value in told.items()}


def _in_place_of_zero(rules: Rules) -> dict[str, str]:
    """What 0 means for rules where it does not mean 0."""
    words = {"slo_s": f"{rules.slo_factor:g} x a call's own run", "mtbf_h": "no device fails"}
    return {name: word for name, word in words.items() if not getattr(rules, name)}


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(map(_word, value)) if isinstance(value, tuple | list) else str(value)
