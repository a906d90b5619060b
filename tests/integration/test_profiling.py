"""Profiles of real runs on a local executor: what is recorded, and how it is taken apart."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

import dgsf
from dgsf.core.perfmodel import predict
from dgsf.remoting.breakdown import breakdown
from dgsf.remoting.profiling import Profiler, profiler

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def made() -> Iterator[Profiler]:
    with profiler(threads=1) as found:
        yield found


def test_a_run_is_recorded_command_by_command(made: Profiler) -> None:
    weight = torch.randn(64, 64).to(made.device)

    def program() -> list[float]:
        time.sleep(0.02)
        return [(weight @ weight).sum().item() for _ in range(4)]

    for _ in range(3):
        run = made.run(program)
    assert all(event.call in run.took for event in run.events if event.call)
    recording = run.recording(made.measure_link())
    told = predict(recording)
    assert told.sync_points == 4
    assert told.down_bytes > 4 * 4
    assert 0 < told.device_us < run.total_us
    assert told.guest_us >= 19_000
    assert all(took.device_us > 0 and took.serve_us >= 0 for took in run.took.values())


def test_content_that_is_always_new_is_counted_as_it_goes_up(made: Profiler) -> None:
    def program() -> float:
        return torch.randn(256, 256).to(made.device).sum().item()

    first, later = made.run(program), made.run(program)
    link = made.measure_link()
    missed, known_to_be_new = predict(first.recording(link)), predict(later.recording(link))
    assert known_to_be_new.sync_points == 1 <= missed.sync_points, "the device side may have to ask for it first"
    assert min(missed.up_bytes, known_to_be_new.up_bytes) >= 256 * 256 * 4


def test_a_run_is_taken_apart(made: Profiler) -> None:
    weight = torch.randn(64, 64).to(made.device)
    run = made.run(lambda: (weight @ weight).tanh().tolist())
    found = breakdown(run, made.measure_link())
    assert found.guest_us + found.waiting_us == pytest.approx(found.total_us, abs=2)
    assert {each.operation for each in found.operations} >= {"aten::tanh", "download"}
    assert sum(each.count for each in found.operations) == found.commands
    assert [trip for trip, _ in found.slowdowns] == [5, 50, 1000]
    ratios = [ratio for _, ratio in found.curve]
    assert ratios == sorted(ratios)


def test_what_noting_costs_is_taken_off(made: Profiler) -> None:
    weight = torch.randn(64, 64).to(made.device)

    def program() -> list[float]:
        return [(weight @ weight).tanh().sum().item() for _ in range(4)]

    runs = [(made.run(program), made.bare_us(program)) for _ in range(5)]
    run, bare_us = runs[-1][0], min(bare for _, bare in runs)
    assert bare_us > 0
    link = made.measure_link()
    known = replace(run, bare_us=run.total_us * 0.8)
    assert known.noting_us == pytest.approx(run.total_us * 0.2 / len(run.events))
    assert predict(known.recording(link)).guest_us < predict(run.recording(link)).guest_us
    assert replace(run, bare_us=run.total_us * 1.1).noting_us == 0
    assert made.run(program).events, "it is noted again"


def test_the_program_finds_its_device_by_either_name(made: Profiler) -> None:
    assert dgsf.device() == torch.device("dgsf:0")
    with dgsf.attach() as device:
        assert device == dgsf.device()
