"""Remoted ÷ native on the CPU device: kernels are long there, so this is the easy part of the proof."""

from __future__ import annotations

from statistics import median

from loadtests import guest_cost
from loadtests.ours import platform
from loadtests.plan import Plan
from loadtests.remoting.pairs import Runner, alternate, environment_of, runner, side_by_side
from loadtests.remoting.programs import PROGRAMS
from loadtests.report import Goal, Row, Section, at_most, compare, single

DEVICES = "cpu:1:threads=1:memory=8GiB:slots=4"
LONG_KERNELS = {"resnet50": 1.05, "bert": 1.05, "resnet18-training": 1.05}
SHORT_KERNELS = {"lstm": 1.3, "gpt": 1.3, "adamw-foreach": 1.3, "adamw-fused": 1.3, "adamw-loop": float("inf")}


def measure(plan: Plan) -> Section:
    """Both groups on one platform, one thread on either side."""
    section = Section("Remote torch on the CPU device, one thread on both sides")
    section.rows.append(_guest_cost())
    with platform("dgsf-remote-cpu", plan.folder, devices=DEVICES) as ours:
        for program, goal in (LONG_KERNELS | SHORT_KERNELS).items():
            native = runner(plan, program, "native")
            remote = runner(plan, program, "attached", environment=environment_of(ours))
            with side_by_side(plan, native, remote) as runners:
                alternate(plan, runners)
            here, there = runners
            section.rows.append(_row(PROGRAMS[program].what, there.seconds, here.seconds, at_most(goal)))
            section.facts[PROGRAMS[program].what] = _wire(there.counts[-1])
            if program == "gpt":
                section.rows.append(_bytes_per_operation(there))
            section.raw[program] = {"native": here.seconds, "remote": there.seconds, "wire": there.counts}
    return section


def _bytes_per_operation(remote: Runner) -> Row:
    """Of commands alone: the program sends no data while it runs."""
    per_call = remote.typical("bytes_out") / max(1.0, remote.typical("calls"))
    return single("GPT training: bytes on the wire per operation", per_call, at_most(40), "bytes")


def _guest_cost() -> Row:
    """The tensor side over a stream that goes nowhere, the middle of many operators."""
    lines = guest_cost.measure()
    return single("guest's time per operation, shape known (median of operators)", median(lines), at_most(25), "µs")


def _row(what: str, remote: list[float], native: list[float], goal: Goal) -> Row:
    return compare(f"{what}: remoted ÷ native", _ms(remote), _ms(native), goal, "ms")


def _ms(seconds: list[float]) -> list[float]:
    return [value * 1e3 for value in seconds]


def _wire(counts: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:,.1f}" for name, value in counts.items()) + " per step"
