"""From what a stream noted to the commands of the performance model."""

from __future__ import annotations

import itertools
import threading

import pytest

from dgsf.core.perfmodel import Command, Link
from dgsf.remoting.guest.recording import (
    BULK_BYTES,
    Event,
    RecordingStream,
    Took,
    mean_serve_us,
    recording_of,
    waited_ns,
)

LINK = Link(command_us=2, bytes_per_us=1000)
US = 1000  # nanoseconds


def event(name: str, began: int, ended: int, call: int = 0, up: int = 0, down: int = 0, waited: bool = False) -> Event:
    return Event(name, began * US, ended * US, call, up, down, waited)


def test_issuing_is_the_guests_work_and_waiting_is_not():
    events = [event("aten::add", 10, 15, call=1, up=40), event("download", 20, 90, up=10, down=30, waited=True)]
    recording = recording_of(events, 0, 100 * US, {1: Took(7.5, 1.0)}, LINK)
    assert list(recording.commands) == [
        Command(7.5, 40, guest_us=13),  # 15 less what the link's command costs
        Command(0, 10, 30, sync=True, guest_us=3),
        Command(0, guest_us=10),  # after the last answer; nothing is sent, so all of it is the guest's
    ]


def test_content_that_is_missed_takes_another_round_trip():
    events = [event("download", 5, 90, up=BULK_BYTES, down=8, waited=True)]
    commands = recording_of(events, 0, 90 * US, {}, LINK).commands
    assert [item.sync for item in commands] == [True, True, False]
    assert commands[0].guest_us == 3 and commands[1].guest_us == 0


def test_the_time_of_a_transfer_belongs_to_the_link():
    events = [event("upload", 0, 300, up=200_000)]
    assert recording_of(events, 0, 300 * US, {}, LINK).commands[0].guest_us == pytest.approx(98)


def test_the_device_sides_own_work_is_spread_over_all_commands():
    events = [event("a", 0, 1, call=1), event("b", 1, 2, call=2), event("upload", 2, 3), event("c", 3, 4, call=9)]
    assert mean_serve_us(events, {1: Took(1, 3), 2: Took(1, 5)}) == 2
    assert mean_serve_us([], {}) == 0


def test_waits_at_the_same_time_are_time_of_the_program_once():
    asked = [event("download", began, ended, waited=True) for began, ended in ((60, 90), (10, 40), (20, 50), (25, 30))]
    assert waited_ns([*asked, event("aten::add", 50, 60)], 0, 100 * US) == 70 * US
    assert waited_ns(asked, 30 * US, 80 * US) == 40 * US, "what lies outside of the run is no part of it"
    assert waited_ns([], 0, 100) == 0


class TwoThreads:
    """A session in which another thread issues a call while the first one waits for its answer."""

    modes = free = None

    def __init__(self) -> None:
        self.calls = self.trips = 0
        self.asked, self.other_wants = threading.Event(), threading.Event()

    def counts(self) -> tuple[int, int, int, int]:
        return self.calls, 0, 0, self.trips

    def sync(self) -> None:
        self.asked.set()
        assert self.other_wants.wait(60)
        self.trips += 1

    def seed(self, seed: int) -> None:
        self.calls += 1


def test_a_call_beside_another_threads_wait_is_no_wait_of_its_own():
    real, ticks = TwoThreads(), itertools.count(1)

    def now() -> int:
        tick = next(ticks)
        if threading.current_thread() is other:
            real.other_wants.set()
        return tick

    def issue() -> None:
        assert real.asked.wait(60)
        stream.seed(1)

    stream = RecordingStream(real, now)
    other = threading.Thread(target=issue)
    other.start()
    stream.sync()
    other.join()
    by_name = {each.name: each for each in stream.events}
    assert (by_name["synchronize"].waited, by_name["seed"].waited) == (True, False)
    assert (by_name["synchronize"].call, by_name["seed"].call) == (0, 1)
    assert by_name["seed"].began >= by_name["synchronize"].ended
    assert by_name["seed"].behind > 0 == by_name["synchronize"].behind
