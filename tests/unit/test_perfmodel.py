"""The performance model: known cases by hand, the choice of attachment, recordings as files."""

from __future__ import annotations

import pytest

from dgsf.core.perfmodel import (
    NATIVE,
    Command,
    Link,
    Recording,
    choose_attach,
    fitted,
    on_faster_device,
    predict,
    slowdown,
    slowdowns,
)
from dgsf.errors import TraceError
from dgsf.sim.recordings import load_recording, save_recording


def stream(*commands: Command) -> Recording:
    return Recording(commands)


def test_native_time_is_the_longer_of_guest_and_device():
    device_bound = stream(*[Command(10, guest_us=1)] * 9, Command(10, guest_us=1, sync=True))
    assert predict(device_bound).total_us == pytest.approx(101)
    guest_bound = stream(*[Command(1, guest_us=10)] * 9, Command(1, guest_us=10, sync=True))
    assert predict(guest_bound).total_us == pytest.approx(101)


def test_each_sync_point_costs_one_round_trip():
    every = stream(*[Command(10, sync=True)] * 5)
    assert predict(every, Link(round_trip_us=100)).total_us == pytest.approx(5 * 110)
    once = stream(*[Command(10)] * 4, Command(10, sync=True))
    assert predict(once, Link(round_trip_us=100)).total_us == pytest.approx(150)


def test_bytes_take_their_time_on_the_link():
    assert predict(stream(Command(0, up_bytes=1000, sync=True)), Link(bytes_per_us=10)).total_us == pytest.approx(100)
    read = stream(Command(0, down_bytes=8192, sync=True))
    assert predict(read, Link(10, bytes_per_us=8192)).total_us == pytest.approx(11)
    few = Link(10, bytes_per_us=8192, outstanding_reads=1, read_bytes=1024)  # 1 KiB per round trip
    assert predict(read, few).total_us == pytest.approx(90)


def test_a_window_of_one_makes_every_command_wait():
    commands = stream(*[Command(1)] * 10, Command(1, sync=True))
    open_, closed = Link(100), Link(100, window=1)
    assert predict(commands, open_).total_us == pytest.approx(111)
    assert predict(commands, closed).total_us == pytest.approx(11 * 101)
    assert predict(commands, closed).waiting_us == pytest.approx(11 * 101)


def test_commands_are_kept_back_for_a_while_and_then_sent_together():
    commands = stream(*[Command(1, guest_us=10)] * 4, Command(1, guest_us=10))
    assert predict(commands, Link(hold_us=30)).total_us == pytest.approx(52)  # three at 30, two at the end
    assert predict(stream(*[Command(100, guest_us=10)] * 2), Link(hold_us=50)).total_us == pytest.approx(220)
    asked = stream(Command(1, guest_us=10), Command(1, guest_us=10, sync=True))
    assert predict(asked, Link(hold_us=500)).total_us == pytest.approx(22)


def test_time_of_the_guest_alone_costs_no_command():
    commands = stream(Command(0, guest_us=10), Command(1, sync=True), Command(0, guest_us=10))
    assert predict(commands, Link(command_us=5)).total_us == pytest.approx(10 + 5 + 1 + 10)


def test_a_link_is_fitted_to_what_was_measured():
    recording = stream(*[Command(10, guest_us=5, sync=True)] * 4)
    link = Link(sync_us=20)
    assert predict(recording, fitted(recording, link, 500)).total_us == pytest.approx(500)
    assert predict(recording, fitted(recording, link, 100)).total_us == pytest.approx(100)
    assert fitted(recording, link, 1).sync_us == 0
    assert fitted(stream(Command(10)), link, 500) == link


def test_the_shorter_the_kernels_the_more_a_round_trip_costs():
    recording = Recording([Command(100, guest_us=1)] * 9 + [Command(100, 0, 8, sync=True)])
    link = Link(round_trip_us=50, sync_us=10)
    ratios = [slowdown(on_faster_device(recording, times), link) for times in (0.1, 1, 10)]
    assert ratios == sorted(ratios) and ratios[0] < 1.02 < 1.5 < ratios[2]
    assert on_faster_device(recording, 1) is recording
    assert predict(on_faster_device(recording, 10)).device_us == pytest.approx(100)


@pytest.mark.parametrize("times", [0, -1, 0.001, 1e5, float("inf"), float("nan")])
def test_a_device_that_is_impossibly_fast_is_refused_with_the_limits(times):
    with pytest.raises(ValueError, match=r"from 0\.01 to 10000"):
        on_faster_device(Recording([Command(1)]), times)


def test_the_choice_tells_why():
    chatty = stream(*[Command(10, down_bytes=4, sync=True)] * 100)
    quiet = stream(*[Command(100)] * 100, Command(1, down_bytes=4, sync=True))
    near = choose_attach(chatty, Link(50))
    assert near.attach == "near" and "100 sync points at a round trip of 50 µs" in near.reason
    fabric = choose_attach(quiet, Link(50))
    assert fabric.attach == "fabric" and fabric.slowdown < 1.01
    assert slowdowns(chatty, NATIVE, [0, 10]) == pytest.approx([1, 2])
    assert slowdown(stream(), Link(50)) == 1.0


def test_recordings_come_back_as_they_were(tmp_path):
    recording = stream(Command(1.5, 10), Command(2, 0, 4, True, 0.25))
    save_recording(tmp_path / "r.jsonl", recording)
    assert load_recording(tmp_path / "r.jsonl") == recording


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("{", "truncated"),
        ('{"kernel_us": "long"}', "kernel_us"),
        ('{"kernel_us": -1}', "at least 0"),
        ('{"kernel_us": 1, "down_bytes": 3}', "sync point"),
        ("{}", "kernel_us"),
        ("3", "object"),
        ('{"kernel_us": ' + "[" * 100_000, "recursion"),
        ('{"kernel_us": 1, "snyc": true}', "unknown field 'snyc'; did you mean 'sync'?"),
        ('{"kernel_us": 1, "foo": 3}', "unknown field 'foo'; known are kernel_us, up_bytes, down_bytes, sync"),
        ('{"kernelus": 1}', "did you mean 'kernel_us'?"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, line, hint):
    (tmp_path / "bad.jsonl").write_text('{"kernel_us": 1}\n' + line + "\n")
    with pytest.raises(TraceError, match=r"bad\.jsonl: line 2") as caught:
        load_recording(tmp_path / "bad.jsonl")
    assert hint in str(caught.value)


def test_a_missing_file_is_one_clear_error(tmp_path):
    with pytest.raises(TraceError, match="cannot be read"):
        load_recording(tmp_path / "none.jsonl")


@pytest.mark.parametrize("wrong", [{"round_trip_us": -1}, {"bytes_per_us": 0}, {"window": -1}, {"read_bytes": 0}])
def test_an_impossible_link_is_refused(wrong):
    with pytest.raises(ValueError, match=r"must be|needs"):
        Link(**wrong)


def test_a_recording_keeps_the_link_that_it_had(tmp_path):
    for link in (
        Link(bytes_per_us=900.0, command_us=2.5, sync_us=400.0, serve_us=3.0, hold_us=50.0),
        Link(sync_us=1.0),
    ):
        recording = Recording((Command(5.0), Command(1.0, sync=True)), link)
        save_recording(tmp_path / "r.jsonl", recording)
        assert load_recording(tmp_path / "r.jsonl") == recording
    (tmp_path / "bad.jsonl").write_text('{"link": {"sync_us": -1}}\n{"kernel_us": 5}\n')
    with pytest.raises(TraceError, match=r"bad\.jsonl: line 1: not a link: .*sync_us"):
        load_recording(tmp_path / "bad.jsonl")


@pytest.mark.parametrize(
    ("head", "hint"),
    [
        ('{"link": {"sync": 1}}', "unknown field 'sync'; did you mean 'sync_us'?"),
        ('{"link": {}, "windows": 4}', "unknown field 'windows'; known are link"),
        ('{"link": 5}', "object"),
        ('["link"]', "object"),
    ],
)
def test_a_head_that_says_something_else_is_refused(tmp_path, head, hint):
    (tmp_path / "bad.jsonl").write_text(f'{head}\n{{"kernel_us": 5}}\n')
    with pytest.raises(TraceError, match=r"bad\.jsonl: line 1: not a link: ") as caught:
        load_recording(tmp_path / "bad.jsonl")
    assert hint in str(caught.value)
