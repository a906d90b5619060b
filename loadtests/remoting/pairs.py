"""Runners of one program, started together and measured in turn.

A program, native or remoted, is kept to one processor.  Where the device is simulated, the platform is kept to the
others, as if they were two machines: left to the kernel, the proxy is often put on the program's processor although
another one rests.  Where the device is the CPU, the platform may use them all: what it does beside the executor would
otherwise be taken from the device.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from dgsf.errors import StartError
from dgsf.heap import HUGE_PAGES
from loadtests import machine
from loadtests.ours import Ours
from loadtests.plan import Plan, rotated
from loadtests.service import Service, python_module, running

_ALL = sorted(os.sched_getaffinity(0))
PROGRAM = frozenset(_ALL[-1:]) if len(_ALL) > 1 else frozenset()
PLATFORM = frozenset(_ALL[:-1])
LEAST_STEPS = 3  # in a round: the first one after a pause is slower
MOST_STEPS = 200


@dataclass(slots=True)
class Runner:
    """One process that runs a program; `seconds` holds a median per round, `counts` what crossed the wire."""

    name: str
    service: Service
    seconds: list[float] = field(default_factory=list)
    counts: list[dict[str, float]] = field(default_factory=list)
    value: float | None = None  # what the last step gave

    def answer(self) -> dict[str, Any]:
        assert self.service.process.stdout is not None
        line = self.service.process.stdout.readline()
        if not line:
            raise StartError(f"{self.name} ended: {self.service.log.read_text('utf-8', 'replace')[-600:]}")
        found: dict[str, Any] = json.loads(line)
        return found

    def round(self, steps: int) -> None:
        """So many steps; the median goes to the figures, and so do the wire's counts per step."""
        assert self.service.process.stdin is not None
        self.service.process.stdin.write(f"{steps}\n")
        self.service.process.stdin.flush()
        answer = self.answer()
        self.value = answer.pop("value", None)
        self.seconds.append(median(answer.pop("seconds")))
        self.counts.append({name: value / steps for name, value in answer.items()})

    def typical(self, count: str) -> float:
        return median(each.get(count, 0.0) for each in self.counts)


def joined(runners: Sequence[Runner]) -> Runner:
    """The figures of several starts of one program, as if it were one."""
    seconds = [value for each in runners for value in each.seconds]
    counts = [value for each in runners for value in each.counts]
    return replace(runners[0], seconds=seconds, counts=counts, value=runners[-1].value)


@contextmanager
def runner(
    plan: Plan, program: str, where: str, *options: str, name: str = "", environment: Mapping[str, str] | None = None
) -> Iterator[Runner]:
    """A runner that has done its warm-up steps."""
    label = name or f"{program}-{where}"
    command = python_module("loadtests.remoting.runner", program, where, *options)
    settings = {**HUGE_PAGES, **(environment or {})}  # as executors have
    with running(label, command, plan.folder, environment=settings, piped=True, processors=PROGRAM) as service:
        made = Runner(label, service)
        made.answer()
        yield made


def environment_of(ours: Ours, **settings: str) -> dict[str, str]:
    """What a client of this platform needs; more settings by name."""
    more = {f"DGSF_{name.upper()}": value for name, value in settings.items()}
    return {"DGSF_URL": ours.url, "DGSF_API_KEY": ours.api_key, **more}


def alternate(plan: Plan, runners: Sequence[Runner], seconds: float = 2.0, turns: int = 1) -> None:
    """Rounds in turn, so many times those of the plan; each runner takes as many steps as it can in so long."""
    steps = {each.name: _steps_in(each, seconds) for each in runners}
    for each in runners:
        each.seconds.clear()
        each.counts.clear()
    rounds = plan.rounds * turns
    for number in range(rounds):
        for each in rotated(runners, number):
            machine.settle(limit=0.25, patience=2.0)
            each.round(steps[each.name])
        told = "  ".join(f"{each.name} {each.seconds[-1] * 1e3:.2f} ms" for each in runners)
        plan.say(f"round {number + 1}/{rounds}  {told}")


def _steps_in(runner: Runner, seconds: float) -> int:
    runner.round(1)
    runner.round(2)
    return max(LEAST_STEPS, min(MOST_STEPS, int(seconds / max(runner.seconds[-1], 1e-6))))


@contextmanager
def side_by_side(plan: Plan, *made: Any) -> Iterator[list[Runner]]:
    """Several runners at once."""
    with ExitStack() as stack:
        yield [stack.enter_context(each) for each in made]
