"""What the trial of the performance model is made of: a relay whose delay changes, processors that do not halt."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from loadtests.awake import processors_awake
from loadtests.latency_relay import LatencyRelay


def test_a_running_relay_takes_another_delay():
    ours, far = socket.socketpair()
    with LatencyRelay(far, 0.0, spin_seconds=0.0) as relay, ours, relay.guest as guest:
        for delay, least, most in ((0.0, 0.0, 1.0), (1.0, 1.0, 60.0), (0.0, 0.0, 1.0)):
            relay.delay(delay)
            began = time.monotonic()
            guest.send(b"x")
            ours.recv(1)
            assert least <= time.monotonic() - began < most
        assert relay.passed().bytes_out == 3


def test_spinners_are_of_the_idle_class_and_end_with_the_context():
    others = _children()
    with processors_awake():
        mine = _children() - others
        assert len(mine) == len(os.sched_getaffinity(0))
        assert {os.sched_getscheduler(pid) for pid in mine} == {os.SCHED_IDLE}
    assert not mine & _children()


def _children() -> set[int]:
    told = (path.read_text() for path in Path("/proc/self/task").glob("*/children"))
    return {int(pid) for text in told for pid in text.split()}
