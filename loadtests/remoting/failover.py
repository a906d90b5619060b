"""A device or a proxy is lost in the middle of training: how long until it goes on, and does it end where it should.

An attached program trains a small GPT; the process that does its commands, or the one that carries them, is killed
with -9 at a moment of its own choosing; the step in which that happens takes longer by the time to resume.  The loss
at the end must be that of a run that nobody disturbed.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from statistics import median

from dgsf.errors import DgsfError
from loadtests.ours import Ours, platform
from loadtests.plan import Plan
from loadtests.remoting.pairs import Runner, environment_of, runner
from loadtests.report import Section, at_most, single

DEVICES = "cpu:2:threads=1:memory=6GiB:slots=2"
STEPS = 16
PROGRAM = "gpt"


def measure(plan: Plan) -> Section:
    section = Section("Fail-over in the middle of training (GPT of 11 million parameters, CPU device, one thread)")
    resumed: dict[str, list[float]] = {"executor": [], "proxy": []}
    losses = []
    with platform("dgsf-failover", plan.folder, devices=DEVICES) as ours:
        undisturbed = _train(plan, ours, None)[1]
        for number in range(plan.rounds):
            for victim, times in resumed.items():
                seconds, loss = _train(plan, ours, victim, 2.0 + 0.7 * number)
                times.append(max(seconds) - median(seconds))
                losses.append(loss)
                plan.say(f"round {number + 1}/{plan.rounds}  {victim}: resumed in {times[-1]:.2f} s, loss {loss!r}")
    goals = {"executor": at_most(2.0), "proxy": at_most(10.0)}  # a new proxy has to start first
    for victim, times in resumed.items():
        section.rows.append(single(f"time to resume, {victim} killed, median", median(times), goals[victim], "s"))
        section.rows.append(single(f"time to resume, {victim} killed, worst", max(times), goals[victim], "s"))
    wrong = sum(loss != undisturbed for loss in losses)
    section.rows.append(single("runs whose loss differs from the undisturbed one", wrong, at_most(0)))
    section.raw = {"resumed": resumed, "losses": losses, "undisturbed": undisturbed}
    return section


def _train(plan: Plan, ours: Ours, victim: str | None, kill_after: float = 0.0) -> tuple[list[float], float]:
    """The seconds of each step and the last loss; the victim, if there is one, is killed on the way."""
    with runner(plan, PROGRAM, "attached", environment=environment_of(ours)) as made:
        if victim is not None:
            pid = executor_of(ours) if victim == "executor" else ours.pid_of("proxy")
            threading.Timer(kill_after, os.kill, (pid, signal.SIGKILL)).start()
        return _steps(made)


def _steps(made: Runner) -> tuple[list[float], float]:
    assert made.service.process.stdin is not None
    made.service.process.stdin.write(f"{STEPS}\n")
    made.service.process.stdin.flush()
    answer = made.answer()
    return answer["seconds"], answer["value"]


def executor_of(ours: Ours, patience: float = 10.0) -> int:
    """The process of the newest session that still runs, from the logs of the device servers."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        found = [pid for pid in _started(ours.layout.logs) if os.path.exists(f"/proc/{pid}")]
        if found:
            return found[-1]
        time.sleep(0.05)
    raise DgsfError("no executor is running")


def _started(logs: Path) -> list[int]:
    lines = [json.loads(line) for log in logs.glob("device-*.log") for line in log.read_text().splitlines() if line]
    started = [line for line in lines if line.get("event") == "worker_started"]
    return [int(line["pid"]) for line in sorted(started, key=lambda line: float(line["time"]))]
