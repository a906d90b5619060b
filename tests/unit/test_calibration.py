"""How the performance model is tried: the relay's changing delay, predictions from probes, what counts as the error."""

from __future__ import annotations

import socket
from dataclasses import replace
from statistics import median

import pytest

from dgsf.core.perfmodel import Link
from dgsf.remoting.guest.probe import DOWNLOAD_BYTES
from dgsf.remoting.guest.recording import Event, Took
from dgsf.remoting.profiling import Run
from loadtests.calibrate import Case
from loadtests.distances import Found, predictions
from loadtests.latency_relay import Direction

LINK = Link(command_us=2, bytes_per_us=1000, sync_us=20)
US = 1000  # nanoseconds


def asking(questions: int) -> Run:
    """Asks so many times, 100 µs each."""
    events = [Event("download", at * 100 * US, (at + 1) * 100 * US, 0, 10, 4, True) for at in range(questions)]
    return Run(events, 0, questions * 100 * US, {0: Took(1.0, 1.0)}, None, questions * 100.0)


def found(value_us: float, took_us: float = 0.0) -> Found:
    return Found([value_us], [value_us + DOWNLOAD_BYTES / 1000], [took_us])


def test_an_answer_costs_more_at_a_distance_by_the_trip_and_by_what_the_probe_found():
    way = {0.0: found(50), 1.0: found(2080)}  # 30 µs beside the delay
    assert predictions([asking(4)], LINK, way, 0.0) == [pytest.approx(400)]
    assert predictions([asking(4)], LINK, way, 1.0) == [pytest.approx(400 + 4 * 2030, rel=0.001)]


def test_what_the_program_took_there_is_not_known_to_its_prediction():
    way = {0.0: found(50, 1.0), 1.0: found(2080, 1.0)}
    otherwise = {delay_ms: replace(each, took_us=[9e9]) for delay_ms, each in way.items()}
    assert predictions([asking(3)], LINK, way, 1.0) == predictions([asking(3)], LINK, otherwise, 1.0)


def test_a_slow_moment_that_slows_prediction_and_run_alike_is_no_error():
    case = Case("any", 1.0, [100, 200, 100, 100, 300], [100, 200, 100, 200, 300])
    assert case.error == 0
    assert Case("any", 1.0, [90, 95], [100, 100]).error == pytest.approx(-0.075)
    assert median(case.predicted_us) == 100


def test_a_changed_delay_is_that_of_later_bytes_and_nothing_overtakes():
    near, source = socket.socketpair()
    target, far = socket.socketpair()
    with near, source, target, far:
        far.setblocking(False)
        way = Direction(source, target, 5.0)
        near.send(b"first")
        assert way.take(1.0) == 5 and way.due() == 6.0
        way.delay = 0.0
        near.send(b"second")
        way.take(2.0)
        way.pass_on(3.0)
        with pytest.raises(BlockingIOError):
            far.recv(100)
        way.pass_on(6.0)
        assert far.recv(100) == b"firstsecond"
