"""`dgsf profile FILE::fn --x 3`: runs a function here on a remote device of its own, and shows where time goes.

No platform is needed: one executor process on this machine's CPU is the device.  The function is called a few times
with the same arguments; the first is told apart, of the others the typical one is shown, and how far they lie apart.
Calls in between are only timed, so that the cost of recording is known and taken off.  What distance would cost is the
performance model's word, not a measurement; `--faster` says how much shorter kernels are on the device that it is for.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from dgsf.cli.output import human_bytes, human_us, json_option, show_json, show_rows
from dgsf.cli.run import bound_arguments
from dgsf.core.counting import counted
from dgsf.core.options import FunctionOptions
from dgsf.core.perfmodel import LEAST_FASTER, MOST_FASTER, NEAR_ABOVE, choose_by_curve, shown
from dgsf.errors import DgsfError, FunctionError, UsageError
from dgsf.fabric.calling import UserRaised, caller_of, write_result
from dgsf.sdk.failures import formatted
from dgsf.sdk.function import Function
from dgsf.sdk.loadfile import functions_in, load_file, pick
from dgsf.sdk.profiles import profiles_file, read_profiles, save_profile, stored_unread
from dgsf.sdk.waiting import telling
from dgsf.sim.recordings import save_recording
from dgsf.sim.writable import check_writable
from dgsf.wire.messages import Codec

if TYPE_CHECKING:
    from dgsf.core.perfmodel import Link, Recording
    from dgsf.remoting.breakdown import Breakdown, Operation
    from dgsf.remoting.profiling import Profiler, Run
    from dgsf.remoting.repeats import Spread

SHOWN_OPERATIONS = 10
MAX_REPEAT = 1000
REPEAT_HELP = "recorded calls after the first one; each is followed by one that is only timed"
FASTER_HELP = "predict for a device whose kernels take so many times less than on this CPU"
RECORDING_HELP = "write the device commands there as they were here, for 'dgsf sim'"
STARTING = "starting a device of its own on this CPU (no device of the platform is used)"
_CLEAR_REST = "\x1b[K"  # of the line on a terminal
_COLUMNS = ("operation", "count", "device_us", "waiting_us")


@click.command("profile", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": True})
@click.argument("target", metavar="FILE::FUNCTION")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[--NAME VALUE]...")
@click.option("--repeat", default=5, show_default=True, type=click.IntRange(1, MAX_REPEAT), help=REPEAT_HELP)
@click.option("--save", is_flag=True, help="keep the profile beside FILE, for attach='auto'")
@click.option("--faster", default=1.0, show_default=True, type=float, help=FASTER_HELP)
@click.option("--recording", type=click.Path(dir_okay=False), help=RECORDING_HELP)
@json_option
def command(
    target: str,
    arguments: tuple[str, ...],
    repeat: int,
    save: bool,
    faster: float,
    recording: str | None,
    as_json: bool,
) -> None:
    """Run FUNCTION of FILE here on a remote device of its own; show where time goes and what distance would cost.

    Arguments are given as for 'dgsf run'.  Later calls find on the device what earlier ones have sent there.
    Kernels are timed on this machine's CPU; a device that runs them faster waits more for the way, see --faster.
    """
    if not LEAST_FASTER <= faster <= MOST_FASTER:
        raise UsageError(f"--faster {faster:g}: a number from {LEAST_FASTER:g} to {MOST_FASTER:,g} makes sense")
    file, _, name = target.rpartition("::")
    if not file or not name:
        raise UsageError(f"{target!r} does not name a function; write e.g. functions/workloads/kmeans.py::near")
    if importlib.util.find_spec("torch") is None:
        raise UsageError("dgsf profile needs torch here: pip install 'dgsf[torch]'")
    click.get_current_context().with_resource(stored_unread())  # a bad one is no reason not to make a better one
    raw, options = find_function(load_file(file), name, file)
    args, kwargs = bound_arguments(name, raw, arguments)
    if recording:
        check_writable(Path(recording))
    if save:
        check_writable(profiles_file(Path(file).resolve()))
        read_profiles(profiles_file(Path(file).resolve()))
    with _progress(1 + 2 * repeat) as tell, asyncio.Runner() as runner:
        call = partial(_call, raw.__name__, caller_of(raw, runner.run), args, kwargs)
        first_us, run, link, spread = profile(call, name, options, repeat, tell, faster)
    if recording:
        _write(recording, run.fitted_recording(link))
    found = taken_apart(run, link, faster)
    if late := timeout_words(options, max(first_us, found.total_us)):
        click.echo(late, err=True)
    saved = save_profile(Path(file).resolve(), raw.__name__, found.curve, faster) if save else None
    if as_json:
        more = {"spread": asdict(spread), "saved": saved and str(saved)}
        show_json({"function": name, "first_call_us": first_us, **asdict(found), **more})
    else:
        _show(name, first_us, found, spread)
    if saved is not None and not as_json:
        click.echo(f"\n{saved_words(str(saved), spread.noisy, repeat)}")


def find_function(module: ModuleType, name: str, file: str) -> tuple[Callable[..., Any], FunctionOptions]:
    """A deployable function of the file, or else a plain one, which has the default options."""
    plain = getattr(module, name, None)
    if inspect.isfunction(plain):
        return plain, FunctionOptions()
    if not isinstance(plain, Function):
        plain = pick(functions_in(module), name, file, _plain_names(module))
    return plain.raw, plain.options


def _plain_names(module: ModuleType) -> list[str]:
    """Of functions that the file itself defines and that are not deployable."""
    found = {name: value for name, value in vars(module).items() if inspect.isfunction(value) and name[0] != "_"}
    return [name for name, value in found.items() if value.__module__ == module.__name__]


def profile(
    call: Callable[[], Any],
    name: str,
    options: FunctionOptions,
    repeat: int,
    tell: Callable[[], None],
    faster: float = 1.0,
) -> tuple[int, Run, Link, Spread]:
    """The first call's time, the typical run among the others, the link that it had, and how far all lie apart."""
    with _device(options) as made:
        from dgsf.remoting.repeats import typical, without_noting

        first = made.run(call)
        tell()
        if not first.events:
            raise UsageError(
                f"{name} did not touch a device: nothing was done on dgsf.device(), torch.device('dgsf') or 'cuda'"
            )
        runs, bare_us = [], []
        for _ in range(repeat):  # in turn: noting costs time, and what it costs is taken off
            runs.append(made.run(call))
            tell()
            bare_us.append(made.bare_us(call))
            tell()
        link = made.measure_link()
        chosen, spread = typical(without_noting(runs, bare_us), link, faster)
        if not chosen.events:
            raise UsageError(f"{name} used its device in its first call only; there is nothing to profile after that")
        return round(first.total_us), chosen, link, spread


@contextmanager
def _device(options: FunctionOptions) -> Iterator[Profiler]:
    """A remote device of its own; whoever waits long for it hears why."""
    with ExitStack() as stack:
        with telling(_starting):
            from dgsf.remoting.profiling import profiler  # loads torch

            alias = options.device_alias if options.attach == "fabric" else "cuda"
            made = stack.enter_context(profiler(alias, memory_bytes=options.gpu_memory_bytes))
        yield made


def _starting() -> str:
    """The notice of a slow start; on a terminal it stands where the progress did, not behind it."""
    _clear_line()
    return STARTING


def _clear_line() -> None:
    if sys.stderr.isatty():
        click.echo(f"\r{_CLEAR_REST}", nl=False, err=True)


@contextmanager
def _progress(calls: int) -> Iterator[Callable[[], None]]:
    """On a terminal: which call of how many runs.  Written between calls only, so that none is disturbed."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    running = count(1)

    def tell() -> None:
        click.echo(f"\rcall {min(next(running), calls)} of {calls}{_CLEAR_REST}", nl=False, err=True)

    tell()
    try:
        yield tell
    finally:
        _clear_line()


def taken_apart(run: Run, link: Link, faster: float = 1.0) -> Breakdown:
    from dgsf.remoting.breakdown import breakdown  # loads torch

    return breakdown(run, link, faster)


def _write(path: str, recording: Recording) -> None:
    try:
        save_recording(path, recording)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error


def _call(name: str, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> None:
    """As a worker does it for a Python caller, whose result leaves the device in the call, whatever its size.

    What the function raises becomes an error with the user's own traceback.
    """
    try:
        write_result(function(*args, **kwargs), Codec.pickle, sys.maxsize)
    except UserRaised as raised:
        raise raised.error from None
    except DgsfError:
        raise
    except (Exception, SystemExit) as error:  # the function's end is not that of the profile
        said = f": {error}" if str(error) else ""
        what = f"{name} raised {type(error).__name__}{said}"
        raise FunctionError(what, error={"traceback": formatted(error)}) from None


def apart_words(spread: Spread) -> str:
    """How long the calls took, and the middle half of them, by which noise is judged."""
    if spread.repeats == 1:
        return f"1 call took {human_us(spread.median_us)}"
    shortest, longest, median = map(human_us, (spread.shortest_us, spread.longest_us, spread.median_us))
    least, most = map(human_us, spread.middle_us)
    return (
        f"{spread.repeats} calls took {shortest} to {longest}, the middle half {least} to {most}, the median {median}"
    )


def threads_words(behind_us: int) -> str:
    """What a prediction assumes of threads that waited at the same time; empty: none did."""
    if not behind_us:
        return ""
    return (
        f"threads of it waited {human_us(behind_us)} for each other's answers: a session asks one question after the "
        "other, so the prediction adds their waits up; what one does while another waits it counts as waiting too, so "
        "distance costs at most this, and less if that is much"
    )


def timeout_words(options: FunctionOptions, longest_us: int) -> str:
    """A profile is taken to its end; what the platform would have said of a call that long is told."""
    if longest_us <= options.timeout_us:
        return ""
    return (
        f"note: a call took {human_us(longest_us)} here, longer than timeout={options.timeout:g}: a profile goes on, "
        "the platform would have stopped it"
    )


def kernels_words(faster: float) -> str:
    """Which kernels the prediction is for."""
    if faster == 1:
        return "with kernels as long as on this CPU; --faster 10 is for a device ten times as fast"
    return f"with kernels {faster:g} x shorter than on this CPU"


def saved_words(path: str, noisy: bool, repeat: int) -> str:
    """Where the profile is, and what to do about a noisy one."""
    if not noisy:
        return f"saved in {path}; deploy with attach='auto' uses it"
    again = f"--save --repeat {min(MAX_REPEAT, 4 * repeat)}"
    return f"a noisy profile was saved in {path}, and deploy with attach='auto' uses it; replace it with {again}"


def _show(name: str, first_us: int, found: Breakdown, spread: Spread) -> None:
    click.echo(f"{name}: {human_us(found.total_us)} (first call {human_us(first_us)}), remote device on this CPU")
    click.echo(f"{apart_words(spread)}; shown is the one of the middle slow-down\n")
    lines = [
        ("the program itself", found.guest_us, f"{human_us(found.issuing_us)} of it to issue remote commands"),
        ("waiting for the device", found.waiting_us, counted(found.sync_points, "sync point")),
        ("the device, beside it", found.device_us, counted(found.commands, "command")),
        ("transfers", found.transfer_us, f"{human_bytes(found.up_bytes)} up, {human_bytes(found.down_bytes)} down"),
    ]
    for what, time_us, more in lines:
        click.echo(f"  {what:24}{human_us(time_us):>10}   {more}")
    click.echo()
    show_rows([asdict(each) for each in shown_operations(found.operations)], _COLUMNS, empty="no operations")
    _show_slowdowns(found, spread)


def shown_operations(operations: Sequence[Operation]) -> list[Operation]:
    """The longest on the device, and all that were waited for: distance costs those most, however short they are."""
    return [each for place, each in enumerate(operations) if place < SHOWN_OPERATIONS or each.waiting_us]


def _show_slowdowns(found: Breakdown, spread: Spread) -> None:
    click.echo("\npredicted time over the fabric, against the same beside an asynchronous device (least and most):")
    click.echo(f"  ({kernels_words(found.faster)})")
    for trip_us, least, most in spread.slowdowns:
        choice = choose_by_curve(found.curve, trip_us)
        told = f"{shown(choice.slowdown):>6} x ({shown(least)} to {shown(most)})"
        would = f"attach='auto' would choose {choice.attach}"
        click.echo(f"  round trip {human_us(round(trip_us)):>6}   {told:25}   {would}")
    click.echo(f"  (fabric up to {NEAR_ABOVE:.2f} x, near above)")
    if told := threads_words(found.behind_us):
        click.echo(f"\n{told}")
    if spread.noisy:
        click.echo(f"\ntoo noisy to trust: {spread.reason}; run it on a quieter machine, or with a higher --repeat")
