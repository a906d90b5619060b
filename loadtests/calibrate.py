"""How well the performance model foretells: programs are recorded without delay, predicted and timed at several delays.

Run as `python -m loadtests.calibrate`.  Each program has a session of its own per round (`loadtests.distances`).  It is
the model that is tried, not the machine's power saving: processors are kept from halting meanwhile, unless `--asleep`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from statistics import median

import click
import torch

from dgsf.config import GIB
from dgsf.remoting.executor.local import LocalExecutors
from functions.models.recurrent import LstmClassifier
from functions.models.transformer import Gpt
from functions.workloads import bert_qa, ct_scan, face_identification, kmeans
from loadtests.awake import processors_awake
from loadtests.distances import Program, Step, sitting
from loadtests.plan import Plan
from loadtests.remoting.programs import gpt_training
from loadtests.report import Row, Section, at_most

DELAYS_MS = (0.0, 0.5, 1.0, 5.0)
GOAL = 0.10
ROUNDS = 5
TURNS = 12
MEMORY = 4 * GIB


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
    """One program at one distance; a prediction and a measurement per turn, a fraction of a second apart."""

    program: str
    delay_ms: float
    predicted_us: list[float] = field(default_factory=list)
    measured_us: list[float] = field(default_factory=list)

    @property
    def error(self) -> float:
        """Too much is above 0; the middle of all turns, because a slower moment slows both of a turn."""
        pairs = zip(self.predicted_us, self.measured_us, strict=True)
        return median(predicted / measured for predicted, measured in pairs) - 1


def calibrate(
    rounds: int, turns: int, say: Callable[[str], None], names: Iterable[str] = PROGRAMS, keep_awake: bool = True
) -> list[Case]:
    """Programs at all distances; each round has new processes, so that no session decides by itself."""
    torch.set_num_threads(1)
    cases = {name: [Case(name, delay_ms) for delay_ms in DELAYS_MS] for name in names}
    with processors_awake() if keep_awake else nullcontext(), LocalExecutors() as executors:
        for number in range(rounds):
            say(f"round {number + 1}/{rounds}")
            for name, wanted in cases.items():
                _round(executors, PROGRAMS[name], wanted, turns)
    return [case for found in cases.values() for case in found]


def _round(executors: LocalExecutors, program: Program, cases: Iterable[Case], turns: int) -> None:
    forget_models()
    torch.manual_seed(0)
    with sitting(executors, program, DELAYS_MS, MEMORY) as session:
        for number in range(turns):
            session.turn(number)
        predicted_us = session.predicted_us()
        for case in cases:
            case.predicted_us.extend(predicted_us[case.delay_ms])
            case.measured_us.extend(session.found[case.delay_ms].took_us)


def forget_models() -> None:
    """Weights that a workload keeps end with the session that they live in."""
    for module in (ct_scan, face_identification, bert_qa):
        module.network.cache_clear()
    face_identification.gallery.cache_clear()


def _told(case: Case) -> str:
    predicted, measured = median(case.predicted_us) / 1e3, median(case.measured_us) / 1e3
    times = f"predicted {predicted:8.2f} ms  measured {measured:8.2f} ms"
    return f"{case.program:22} {case.delay_ms:4g} ms each way  {times}  error {case.error:+6.1%}"


def measure(plan: Plan) -> Section:
    """For `make bench`."""
    section = Section("The performance model: predicted against measured (CPU device, one thread)")
    for case in calibrate(plan.rounds, TURNS, plan.say):
        what = f"{case.program}, {case.delay_ms:g} ms each way: error of the prediction"
        predicted, measured = median(case.predicted_us) / 1e3, median(case.measured_us) / 1e3
        section.rows.append(Row(what, predicted, measured, abs(case.error), at_most(GOAL), "ms"))
        section.raw[what] = {"predicted_us": case.predicted_us, "measured_us": case.measured_us}
    return section


@click.command()
@click.option("--rounds", default=ROUNDS, show_default=True, type=click.IntRange(1, 1000), help="Sessions per program.")
@click.option("--turns", default=TURNS, show_default=True, type=click.IntRange(1, 1000), help="Runs in a session.")
@click.option("--only", "names", multiple=True, type=click.Choice(list(PROGRAMS)), help="Only this program.")
@click.option("--awake/--asleep", default=True, help="Whether processors are kept from halting meanwhile.")
def main(rounds: int, turns: int, names: tuple[str, ...], awake: bool) -> None:
    """Predict and measure; print the error of each case."""
    cases = calibrate(rounds, turns, lambda text: click.echo(text, err=True), names or PROGRAMS, awake)
    for case in cases:
        click.echo(_told(case))
    within = sum(abs(case.error) <= GOAL for case in cases)
    middle = median(abs(case.error) for case in cases)
    click.echo(f"{within} of {len(cases)} within {GOAL:.0%}; median error {middle:.1%}")


if __name__ == "__main__":
    main()
