"""How well the performance model foretells: programs are recorded once, predicted at several distances, measured there.

Run as `python -m loadtests.calibrate`.  A program is recorded over a relay without delay; the link at each distance is
measured by questions and a download alone; the prediction from the two is held against runs over that link.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from statistics import median

import click
import torch

from dgsf.config import GIB
from dgsf.core.checkpointing import CheckpointPolicy
from dgsf.core.perfmodel import Link, predict
from dgsf.remoting.executor.local import LocalExecutors, LocalSpec
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.probe import Typical, measure_link
from dgsf.remoting.guest.session_stream import SessionStream
from dgsf.remoting.profiling import Run, profiler
from dgsf.remoting.repeats import without_noting
from functions.models.recurrent import LstmClassifier
from functions.models.transformer import Gpt
from functions.workloads import bert_qa, ct_scan, face_identification, kmeans
from loadtests.latency_relay import LatencyRelay
from loadtests.plan import Plan
from loadtests.remoting.programs import gpt_training
from loadtests.report import Row, Section, at_most

DELAYS_MS = (0.0, 0.5, 1.0, 5.0)
GOAL = 0.10
WARM = 5
REPEATS = 7
MEMORY = 4 * GIB
Step = Callable[[], object]
Program = Callable[[torch.device], Step]
TYPICAL: dict[str, Typical] = {"median": median, "best": min}


def _lstm(device: torch.device) -> Step:
    model, words = LstmClassifier(32, 64).eval().to(device), torch.randn(4, 24, 32)

    def step() -> object:
        with torch.no_grad():
            return model(words.to(device)).cpu()

    return step


def _gpt(device: torch.device) -> Step:
    model = Gpt(words=128, length=64, width=64, layers=2, heads=2).to(device)
    return gpt_training(model, torch.randint(0, 128, (4, 65)).to(device))


def _talkative(device: torch.device) -> Step:
    """Asks for a value after each piece of work: distance is all that counts."""
    matrix = torch.randn(128, 128).to(device) / 12

    def step() -> object:
        return [(matrix @ matrix).sum().item() for _ in range(10)]

    return step


PROGRAMS: dict[str, Program] = {
    "k-means": lambda device: lambda: kmeans.run(device, 5_000, 8, 8, 10, 0),
    "CT scan": lambda device: lambda: ct_scan.run(device, 8, 32, 0),
    "face identification": lambda device: lambda: face_identification.run(device, 4, 16, 0.2, 0),
    "BERT questions": lambda device: lambda: bert_qa.run(device, "What does it share?", bert_qa.TEXT, "tiny"),
    "LSTM": _lstm,
    "GPT training step": _gpt,
    "ten values asked for": _talkative,
}


@dataclass(frozen=True, slots=True)
class Case:
    """One program at one distance; a prediction and a measurement per round, both of the same minutes."""

    program: str
    delay_ms: float
    predicted_us: list[float] = field(default_factory=list)
    measured_us: list[float] = field(default_factory=list)

    @property
    def error(self) -> float:
        return abs(median(self.predicted_us) / median(self.measured_us) - 1)


class Calibration:
    """Executors of one process, and what counts as the typical of several runs."""

    def __init__(self, executors: LocalExecutors, repeats: int, typical: Typical) -> None:
        self._executors = executors
        self._repeats = repeats
        self._typical = typical

    def round(self, name: str, cases: Iterable[Case], say: Callable[[str], None]) -> None:
        """One program: recorded, then run at each distance."""
        program = PROGRAMS[name]
        link, runs = self._record(program)
        total_us = self._typical([run.total_us for run in runs])
        say(f"{name}: {len(runs[0].events)} commands, {total_us / 1e3:.2f} ms while recorded")
        for case in cases:
            trip_us = 2e3 * case.delay_ms
            there, measured_us = self._measure(program, case.delay_ms)
            more_us = there.sync_us - trip_us - link.sync_us  # what a question costs more there, beside the delay
            predicted = [_predicted_us(run, link, trip_us, more_us, there.bytes_per_us) for run in runs]
            case.predicted_us.append(self._typical(predicted))
            case.measured_us.append(measured_us)

    def _record(self, program: Program) -> tuple[Link, list[Run]]:
        """Runs of the program, and the link that they had.

        The relay is on the way here too, without delay: on a few processors it takes time from the others.
        """
        forget_models()
        torch.manual_seed(0)
        with ExitStack() as stack:
            way = self._executors, lambda sock: stack.enter_context(LatencyRelay(sock, 0.0)).guest
            made = stack.enter_context(profiler("", 1, MEMORY, *way))
            step, link = _warm(program, made.device), made.measure_link(self._typical)
            runs = [(made.run(step), made.bare_us(step)) for _ in range(self._repeats)]
            return link, without_noting([run for run, _ in runs], [bare for _, bare in runs])

    def _measure(self, program: Program, delay_ms: float) -> tuple[Link, float]:
        """The link, and the program's time over it."""
        forget_models()
        torch.manual_seed(0)
        with self._over(delay_ms) as (stream, device):
            step, link = _warm(program, device), measure_link(stream, device, self._typical)
            return link, self._typical([_took_us(step, stream) for _ in range(self._repeats)])

    @contextmanager
    def _over(self, delay_ms: float) -> Iterator[tuple[SessionStream, torch.device]]:
        with ExitStack() as stack:
            sock = self._executors.connect(LocalSpec(device_options={"threads": 1}))
            sock = stack.enter_context(LatencyRelay(sock, delay_ms / 1e3)).guest
            stream = SessionStream(sock, policy=CheckpointPolicy())
            stack.callback(stream.close)
            yield stream, stack.enter_context(bind(stream))


def calibrate(
    rounds: int, repeats: int, say: Callable[[str], None], typical: Typical = median, names: Iterable[str] = PROGRAMS
) -> list[Case]:
    """Programs at all distances, round by round, so that a disturbed minute spoils one round only."""
    torch.set_num_threads(1)
    cases = {name: [Case(name, delay_ms) for delay_ms in DELAYS_MS] for name in names}
    with LocalExecutors() as executors:
        calibration = Calibration(executors, repeats, typical)
        for number in range(rounds):
            say(f"round {number + 1}/{rounds}")
            for name, wanted in cases.items():
                calibration.round(name, wanted, say)
    return [case for found in cases.values() for case in found]


def _predicted_us(run: Run, link: Link, trip_us: float, more_us: float, bytes_per_us: float) -> float:
    own = run.fitted(link)
    far = replace(own, round_trip_us=trip_us, sync_us=max(0.0, own.sync_us + more_us), bytes_per_us=bytes_per_us)
    return predict(run.recording(link), far).total_us


def _warm(program: Program, device: torch.device) -> Step:
    step = program(device)
    for _ in range(WARM):
        step()
    return step


def _took_us(step: Step, stream: SessionStream) -> float:
    stream.sync()
    began = time.perf_counter_ns()
    step()
    return (time.perf_counter_ns() - began) / 1e3


def forget_models() -> None:
    """Weights that a workload keeps end with the session that they live in."""
    for module in (ct_scan, face_identification, bert_qa):
        module.network.cache_clear()
    face_identification.gallery.cache_clear()


def _told(case: Case) -> str:
    predicted, measured = median(case.predicted_us) / 1e3, median(case.measured_us) / 1e3
    times = f"predicted {predicted:8.2f} ms  measured {measured:8.2f} ms"
    return f"{case.program:22} {case.delay_ms:4g} ms each way  {times}  error {case.error:6.1%}"


def measure(plan: Plan) -> Section:
    """For `make bench`."""
    section = Section("The performance model: predicted against measured (CPU device, one thread)")
    for case in calibrate(plan.rounds, REPEATS, plan.say):
        what = f"{case.program}, {case.delay_ms:g} ms each way: error of the prediction"
        predicted, measured = median(case.predicted_us) / 1e3, median(case.measured_us) / 1e3
        section.rows.append(Row(what, predicted, measured, case.error, at_most(GOAL), "ms"))
        section.raw[what] = {"predicted_us": case.predicted_us, "measured_us": case.measured_us}
    return section


@click.command()
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1, 1000), help="Rounds over everything.")
@click.option("--repeats", default=REPEATS, show_default=True, type=click.IntRange(1, 1000), help="Runs in a round.")
@click.option(
    "--of", default="median", type=click.Choice(list(TYPICAL)), help="Which run counts; the best on a busy machine."
)
@click.option("--only", "names", multiple=True, type=click.Choice(list(PROGRAMS)), help="Only this program.")
def main(rounds: int, repeats: int, of: str, names: tuple[str, ...]) -> None:
    """Predict and measure; print the error of each case."""
    cases = calibrate(rounds, repeats, lambda text: click.echo(text, err=True), TYPICAL[of], names or PROGRAMS)
    for case in cases:
        click.echo(_told(case))
    within = sum(case.error <= GOAL for case in cases)
    click.echo(f"{within} of {len(cases)} within {GOAL:.0%}; median error {median(case.error for case in cases):.1%}")


if __name__ == "__main__":
    main()
