"""Keep-warm replayed over the published traces, where they are at hand: minutes, so they have a target of their own."""

from __future__ import annotations

import pytest

from dgsf.config import load_settings
from dgsf.sim.traces import read_trace
from dgsf.sim.warmpool import Shape
from dgsf.sim.warmrules import FixedIdle
from loadtests.keepwarm import FIXED_S, RUNS, Setting, best_possible, ours_beside_fixed, tally

FOLDER = load_settings().traces
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no folder of traces at {FOLDER}; set DGSF_TRACES")


@pytest.mark.parametrize(
    ("shape", "load_s", "waits", "fixed_waits"),
    [(Shape(8), 15.0, False, False), (Shape(8, RUNS, shared=True), 15.0, False, False), (Shape(4), 30.0, True, False)],
    ids=["eight-slots", "eight-slots-shared-weights", "four-slots-and-ours-may-wait"],
)
def test_keep_warm_halves_the_cold_starts_of_a_fixed_idle_time_in_no_more_time(shape, load_s, waits, fixed_waits):
    trace = read_trace("genai", FOLDER)
    names = [trace.functions[index].name for index in trace.function]
    setting = Setting(list(zip(trace.arrival_s, names, trace.run_s, strict=True)), shape, load_s)
    ours, fixed = ours_beside_fixed(setting, waits=waits, fixed_waits=fixed_waits)
    assert ours.whole.cold <= 0.5 * fixed.whole.cold
    assert ours.whole.resident_s <= fixed.whole.resident_s
    assert ours.rest.cold <= 0.5 * fixed.rest.cold
    assert ours.rest.resident_s <= fixed.rest.resident_s


@pytest.mark.parametrize("load_s", [2.0, 15.0])
def test_on_one_crowded_function_keep_warm_is_better_than_a_fixed_idle_time_in_no_more_time(load_s):
    trace = read_trace("azure", FOLDER)
    calls = [(at, "llm", run_s) for at, run_s in zip(trace.arrival_s, trace.run_s, strict=True)][:4_000]
    ours, fixed = ours_beside_fixed(Setting(calls, Shape(8), load_s), waits=False)
    assert ours.whole.cold <= 0.75 * fixed.whole.cold
    assert ours.whole.resident_s <= fixed.whole.resident_s


def test_with_one_slot_and_quick_loads_not_even_knowing_all_calls_halves_them_unless_some_are_loaded_ahead():
    trace = read_trace("genai", FOLDER)
    names = [trace.functions[index].name for index in trace.function]
    setting = Setting(list(zip(trace.arrival_s, names, trace.run_s, strict=True)), Shape(1), load_s=2.0)
    (fixed,) = tally(setting, [setting.pool(FixedIdle(FIXED_S))])
    assert best_possible(setting, fixed).whole.cold > 0.5 * fixed.whole.cold
