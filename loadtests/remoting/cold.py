"""Whole functions, cold: over the fabric ÷ the same script as a fresh local process.

Ours: the function exists, no worker of it is warm; the clock runs from the request to the answer.  The peer:
a new Python process imports torch, makes the weights, runs once.  Only workloads whose warm run takes under a
second count.  The first call of all brings the weights to the device and has a row of its own: later ones, of other
versions and other workers, find them there.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from dgsf.config import GIB
from dgsf.errors import DgsfError
from loadtests import machine
from loadtests.coldstart import until_no_leases
from loadtests.ours import Ours, deploy, function_of, platform
from loadtests.plan import Plan
from loadtests.remoting.on_cpu import DEVICES
from loadtests.remoting.programs import WORKLOADS
from loadtests.report import Section, at_most, compare
from loadtests.service import ROOT, post

WARM_SECONDS = 1.0
IDLE_SECONDS = 0.3
FREE_BYTES = 3 * GIB  # more than either side needs
_SCRIPT = """
import inspect, torch
torch.set_num_threads(1)
from functions.workloads import {name} as work
given = {{key: value.default for key, value in inspect.signature(work.near.raw).parameters.items()}}
work.run(torch.device("cpu"), **given)
"""


def measure(plan: Plan) -> Section:
    section = Section("Whole functions, cold (CPU device, one thread)")
    with platform("dgsf-cold-fabric", plan.folder, devices=DEVICES) as ours:
        for name in WORKLOADS:
            mine: list[float] = []
            theirs: list[float] = []
            warm: list[float] = []
            for number in range(plan.rounds):
                mine.append(_cold(ours, name, number, warm))
                _settle()
                theirs.append(_fresh_process(name))
                plan.say(f"{name} {number + 1}/{plan.rounds}  {mine[-1] * 1e3:.0f} ms  process {theirs[-1] * 1e3:.0f}")
            if min(warm) < WARM_SECONDS:
                what = f"{name.replace('_', ' ')}: cold over the fabric ÷ fresh process"
                for when, rounds in (("", slice(1, None)), (", the first time", slice(0, 1))):
                    if here := _ms(mine[rounds]):
                        row = compare(what + when, here, _ms(theirs[rounds]), at_most(0.5), "ms")
                        section.rows.append(row)
            section.raw[name] = {"fabric": mine, "process": theirs, "warm": warm}
    return section


def _cold(ours: Ours, name: str, number: int, warm: list[float]) -> float:
    """The first call of a version that nothing is warm of; then one more, to know its warm time."""
    function = function_of(Path(ROOT, "functions", "workloads", f"{name}.py"), f"{name}.fabric")
    deployed = f"{name}.cold{number}"
    deploy(ours, function.with_options(idle_seconds=IDLE_SECONDS), deployed)
    with ours.client() as client:
        until_no_leases(client.leases)  # the pool is free, as it is after a quiet minute
    _settle()
    took = _call(ours, deployed)
    warm.append(_call(ours, deployed))
    return took


def _settle() -> None:
    machine.settle()
    machine.have_free_memory(FREE_BYTES)


def _call(ours: Ours, function: str) -> float:
    began = time.perf_counter()
    status, body = post(ours.invoke_url(function), b"{}", {"Content-Type": "application/json", **ours.headers})
    if status != 200:
        raise DgsfError(f"{function} answered {status}: {json.loads(body or b'{}')}")
    return time.perf_counter() - began


def _fresh_process(name: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", _SCRIPT.format(name=name)], cwd=ROOT, check=True, capture_output=True)
    return time.perf_counter() - began


def _ms(seconds: list[float]) -> list[float]:
    return [value * 1e3 for value in seconds]
