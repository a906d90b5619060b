"""The published traces, where they are at hand, are read whole, and a known figure comes out again."""

from __future__ import annotations

import pytest

from dgsf.config import load_settings
from dgsf.sim.engine import Simulator
from dgsf.sim.pools import parse_pool
from dgsf.sim.result import summarise
from dgsf.sim.rules import Rules
from dgsf.sim.traces import READERS, read_trace

FOLDER = load_settings().traces
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no folder of traces at {FOLDER}; set DGSF_TRACES")


@pytest.mark.parametrize(
    ("name", "calls", "functions"),
    [("genai", 13_411, 76), ("azure", 8_819, 1), ("openb", 8_152, 8_152), ("tenants", 4_566, 4_566)],
)
def test_every_trace_is_read_whole(name, calls, functions):
    assert name in READERS
    workload = read_trace(name, FOLDER)
    assert (workload.calls, len(workload.functions)) == (calls, functions)


def test_gpu_hours_of_tenant_exclusive_fractions_are_those_of_the_reference():
    workload = read_trace("tenants", FOLDER)
    run = Simulator(workload, parse_pool("T4:64x1"), "conspirator", Rules(idle_s=0.0, start_s=0.0)).run()
    assert summarise(run).gpu_hours == pytest.approx(479, rel=0.02)
