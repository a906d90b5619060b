"""What a program raises inside a backward pass comes out of it as on the CPU, and the process lives.

The faults run in a process of their own, one after the other; one that ends it is the first without a line.
"""

from __future__ import annotations

import ctypes
import json
import operator
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import backward_faults
import pytest


@pytest.fixture(scope="module", params=["", "cuda"], ids=["dgsf", "cuda"])
def outcomes(request):
    program = Path(backward_faults.__file__)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(program), request.param]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: found for name, *found in lines} | {"exit code": done.returncode, "errors": done.stderr}


@pytest.mark.parametrize("fault", backward_faults.FAULTS)
def test_a_fault_is_seen_as_on_the_cpu_with_a_session_or_without(fault, outcomes):
    assert fault in outcomes, outcomes["errors"]
    before, here, there = outcomes[fault]
    assert there == here == before


def test_a_gradient_on_another_device_is_refused(outcomes):
    kind, message, *_ = outcomes["gradient on the cpu"]
    assert kind == "RuntimeError" and "has changed the type of value" in message


def test_a_graph_that_outlives_its_session_says_so(outcomes):
    assert outcomes["after the session"] == ["NotAttached"]
    assert outcomes["exit code"] == 0, outcomes["errors"]


def test_a_signal_that_comes_while_torch_asks_the_guard_is_met_after_it():
    from dgsf.remoting.guest.guard import Guard

    def interrupted(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupted)
    arrives = partial(getattr(ctypes.PyDLL(None), "raise"), signal.SIGUSR1)
    told = []
    try:
        with pytest.raises(KeyboardInterrupt):
            told.extend(map(operator.call, (arrives, Guard().type_)))  # one after the other, from C as torch does
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(told) == 2
