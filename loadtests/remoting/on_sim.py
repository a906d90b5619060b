"""Remoted ÷ native on a simulated A100: kernels of GPU length, launched without waiting, values that are zeros.

The kernel times are a model (dgsf/fabric/devices/a100.py), no measurement on a GPU.  Native is the same Python program
with that device in its own process (`direct`); beside it the bare launches of the program, without any Python
around them, as a floor; naive is one round trip per operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from loadtests.ours import platform
from loadtests.plan import Plan
from loadtests.remoting.pairs import PLATFORM, PROGRAM, Runner, alternate, environment_of, runner, side_by_side
from loadtests.remoting.programs import PROGRAMS
from loadtests.report import Section, at_most, compare
from loadtests.service import python_module, running

DEVICES = "sim:A100:1:timing=a100:values=dummy:slots=8"
NO_GOAL = float("inf")
# Steps take milliseconds, and this kind of machine runs at half its speed for a second now and then: many short turns
# are all met by it alike, where of a few long ones it doubles one or another.
TURNS = 5
TURN_SECONDS = 0.1
PROGRAMS_ON_SIM = ("resnet50-resident", "bert-resident", "resnet18-training-32", "resnet50", "bert")


def measure(plan: Plan) -> Section:
    section = Section("Remote torch on a simulated A100")
    with platform("dgsf-remote-sim", plan.folder, devices=DEVICES, processors=PLATFORM) as ours:
        for program in PROGRAMS_ON_SIM:
            made = [
                runner(plan, program, "direct"),
                _launches(plan, program),
                runner(plan, program, "attached", "--gpu", "A100", environment=environment_of(ours)),
                runner(
                    plan,
                    program,
                    "attached",
                    "--gpu",
                    "A100",
                    name=f"{program}-naive",
                    environment=environment_of(ours, remoting="naive"),
                ),
            ]
            with side_by_side(plan, *made) as runners:
                alternate(plan, runners, seconds=TURN_SECONDS, turns=TURNS)
            native, bare, remote, naive = runners
            what = PROGRAMS[program].what
            section.rows.append(
                compare(f"{what}: remoted ÷ native", _ms(remote.seconds), _ms(native.seconds), at_most(1.10), "ms")
            )
            section.rows.append(
                compare(
                    f"{what}: remoted ÷ bare launches", _ms(remote.seconds), _ms(bare.seconds), at_most(NO_GOAL), "ms"
                )
            )
            section.rows.append(
                compare(f"{what}: naive ÷ native", _ms(naive.seconds), _ms(native.seconds), at_most(NO_GOAL), "ms")
            )
            section.raw[program] = {each.name: {"seconds": each.seconds, "wire": each.counts} for each in runners}
    return section


@contextmanager
def _launches(plan: Plan, program: str) -> Iterator[Runner]:
    command = python_module("loadtests.remoting.sim_native", program)
    with running(f"{program}-launches", command, plan.folder, piped=True, processors=PROGRAM) as service:
        made = Runner(f"{program}-launches", service)
        made.answer()
        yield made


def _ms(seconds: list[float]) -> list[float]:
    return [value * 1e3 for value in seconds]
