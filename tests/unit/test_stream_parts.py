"""The pure parts of the guest's stream: modes, bodies, journal, snapshots, the checkpoint policy, lines."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import numpy as np
import pytest

from dgsf.core.checkpointing import BYTES_PER_SECOND, CheckpointCost, CheckpointPolicy, time_lost
from dgsf.errors import ConfigError, ProtocolError
from dgsf.remoting.guest.bodies import encode_records, join_bodies
from dgsf.remoting.guest.checkpoint import NOTHING, absorb
from dgsf.remoting.guest.journal import Journal, Transfer
from dgsf.remoting.guest.kinds import Kind
from dgsf.remoting.guest.lines import Lines, here
from dgsf.remoting.guest.modes import FULL, NAIVE, SWITCHES, parse_modes
from dgsf.remoting.guest.recorder import Recorder
from dgsf.remoting.protocol import TENSOR, Record

encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode


# --- modes ------------------------------------------------------------------------------------
def test_modes_are_full_unless_switched_off() -> None:
    assert parse_modes("full") == parse_modes("") == FULL
    assert parse_modes("naive") == NAIVE
    modes = parse_modes("full,-traces, -known")
    assert (modes.traces, modes.known, modes.coalesce, modes.naive) == (False, False, True, False)


def test_every_way_of_hiding_latency_has_a_switch() -> None:
    assert set(SWITCHES) == {"coalesce", "traces", "known", "shapes", "elements", "frees", "overlap", "survival"}
    for switch in SWITCHES:
        assert not getattr(parse_modes(f"full,-{switch}"), switch)
    with pytest.raises(ConfigError, match="-frees, -overlap"):
        parse_modes("full,-free")


@pytest.mark.parametrize("text", ["fast", "full,traces", "full,-speed", "-traces"])
def test_a_misspelt_mode_is_refused_with_what_is_known(text: str) -> None:
    with pytest.raises(ConfigError, match=r"full|-traces"):
        parse_modes(text)


# --- bodies and journal -----------------------------------------------------------------------
@pytest.mark.parametrize("sizes", [[1], [3, 4], [15, 1], [16, 16], [300, 1, 65_600], [0, 2]])
def test_bodies_are_joined_without_decoding_them(sizes: list[int]) -> None:
    bodies = [encode_records([[number, "x"] for number in range(size)]) for size in sizes]
    assert decode(join_bodies(bodies)) == [[number, "x"] for size in sizes for number in range(size)]


def test_a_journal_replays_in_order_and_forgets_what_a_checkpoint_covers() -> None:
    journal = Journal()
    journal.note(encode([[1]]))
    journal.note(encode([[2]]))
    journal.note_transfer(7, memoryview(b"abc"))
    mark = journal.mark()
    journal.note(encode([[3]]))
    journal.note_name(b"d" * 32)
    replay = list(journal.replay())
    assert replay == [encode([[1], [2]]), Transfer(7, memoryview(b"abc")), encode([[3]])]
    journal.drop(mark)
    assert list(journal.replay()) == [encode([[3]])]
    assert journal.bytes == len(encode([[3]]))
    assert journal.digests == {b"d" * 32}


# --- snapshots --------------------------------------------------------------------------------
def snapshot(number: int, storages: list[Any], data: bytes, rest: Any = None) -> tuple[list[int], memoryview]:
    head = encode([number, storages, rest])
    whole = np.frombuffer(head + data, dtype=np.uint8)
    return [len(head), len(whole)], whole.data


def test_snapshots_are_joined_by_storage() -> None:
    digest = b"d" * 32
    first = absorb(NOTHING, *snapshot(1, [[1, 3, True], [2, 2, True], [3, 9, digest]], b"abcxy", {"a": 1}), [], 5)
    second = absorb(first, *snapshot(2, [[1, 3, None], [2, 2, True], [3, 9, digest]], b"XY", {"a": 2}), [], 9)
    head, size, pieces = second.restore()
    assert decode(head) == [2, [[1, 3, True], [2, 2, True], [3, 9, digest]], {"a": 2}]
    assert b"".join(map(bytes, pieces)) == head + b"abcXY"
    assert size == len(head) + 5
    assert second.digests == {digest}
    assert second.calls == 9


def test_a_snapshot_that_does_not_add_up_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        absorb(NOTHING, *snapshot(1, [[1, 3, None]], b""), [], 0)
    with pytest.raises(ProtocolError):
        absorb(NOTHING, *snapshot(1, [[1, 3, True]], b"abcd"), [], 0)
    with pytest.raises(ProtocolError):
        absorb(NOTHING, [3, 3], memoryview(b"\xc1\xc1\xc1"), [], 0)


# --- when to save -----------------------------------------------------------------------------
def test_a_checkpoint_is_due_when_a_replay_takes_too_long_and_it_is_cheap_enough() -> None:
    policy = CheckpointPolicy(replay_seconds=1.0, share=0.04, journal_bytes=1000)
    cheap = {"worked": 1.2, "cost": 0.04, "journal_bytes": 10}
    assert not policy.due(busy=0.5, **cheap)
    assert policy.due(busy=1.5, **cheap)
    assert not policy.due(busy=1.5, worked=0.4, cost=0.04, journal_bytes=10)  # work beside the last is no credit
    assert policy.due(busy=0.0, worked=0.0, cost=5.0, journal_bytes=1000)
    assert policy.due(busy=0.0, worked=0.0, cost=5.0, journal_bytes=800)  # early enough to wait for a good moment


def test_the_later_a_checkpoint_is_the_more_it_may_cost_within_bounds() -> None:
    policy = CheckpointPolicy(replay_seconds=1.0, share=0.04)
    assert [round(policy.share_for(busy), 3) for busy in (0.0, 1.0, 1.5, 2.0, 9.0)] == [0.04, 0.04, 0.09, 0.12, 0.12]
    dear = {"cost": 0.16, "journal_bytes": 0}
    assert not policy.due(busy=1.5, worked=1.5, **dear)
    assert policy.due(busy=2.0, worked=2.0, **dear)
    assert CheckpointPolicy(share=0.0).share_for(9.0) == 0.0


def test_a_checkpoint_is_taken_now_if_it_would_be_late_at_the_next_good_moment() -> None:
    policy = CheckpointPolicy(replay_seconds=1.0, share=0.1)
    free = {"worked": 1.0, "cost": 0.0, "journal_bytes": 0}
    assert policy.due(busy=0.6, ahead=0.6, **free)
    assert not policy.due(busy=0.6, ahead=0.3, **free)
    assert not policy.due(busy=0.4, ahead=9.0, **free)  # so little is replayed sooner than saved
    assert not policy.due(busy=0.6, ahead=0.6, worked=0.6, cost=0.07, journal_bytes=0)


def test_few_tensors_alive_is_told_before_the_next_call_makes_one() -> None:
    recorder, negate = Recorder(), Kind("aten::neg", [{TENSOR: 0}])
    kept, gone = recorder.call(negate, [1], ()), recorder.call(negate, [1], ())
    seen: list[tuple[int, list[Any]]] = []
    recorder.low, recorder.on_low = kept + 1, lambda: seen.append((recorder.next_handle, recorder.take()))
    recorder.freed.append(gone)
    following = recorder.call(negate, [kept], ())
    ((next_handle, records),) = seen
    assert next_handle == following
    assert records[-1] == [int(Record.FREE), [gone]]


def test_the_cost_is_learnt_from_those_before() -> None:
    cost = CheckpointCost()
    cost.expect_at_least(150_000_000)
    assert cost.bytes_per_second == BYTES_PER_SECOND
    cost.measure(150_000_000, 3.0)
    assert cost.bytes_per_second == BYTES_PER_SECOND  # its memory was fresh
    cost.measure(150_000_000, 1.5)
    assert cost.bytes_per_second == pytest.approx(1e8)
    cost.begin_again()
    cost.measure(300_000_000, 30.0)
    assert cost.bytes_per_second == pytest.approx(1e8)
    for _ in range(10):
        cost.measure(1_000_000, 0.01)
    assert cost.seconds == pytest.approx(0.012, rel=0.1)


def test_a_state_that_is_larger_each_time_is_measured_too() -> None:
    cost = CheckpointCost()
    for turn in range(5):
        cost.measure(int(1e8 * 1.2**turn), 1.2**turn)
    assert cost.bytes_per_second == pytest.approx(1e8, rel=0.01)


def test_what_a_checkpoint_cost_is_owed_also_if_it_says_nothing_of_the_next() -> None:
    cost = CheckpointCost()
    cost.measure(150_000_000, 3.0)
    assert cost.seconds == 3.0  # fresh memory
    cost.begin_again()
    assert cost.seconds == 3.0
    cost.owe(1.0, paid=0.5)  # of an attempt that came to nothing
    assert cost.seconds == 3.5
    cost.measure(150_000_000, 0.5, paid=5.0)
    assert cost.owed == 0.5


def test_a_program_that_goes_on_as_usual_loses_little_to_a_checkpoint() -> None:
    assert time_lost(0.4, calls=0, calls_per_second=1000) == 0.4
    assert time_lost(0.4, calls=300, calls_per_second=1000) == pytest.approx(0.1)
    assert time_lost(0.4, calls=900, calls_per_second=1000) == pytest.approx(0.04)
    assert time_lost(0.4, calls=900, calls_per_second=0) == 0.4
    assert time_lost(0.4, calls=900, calls_per_second=1000, copied=0.1) == pytest.approx(0.13)


# --- lines ------------------------------------------------------------------------------------
def spot() -> Any:
    return here()  # `here` looks past its caller, the recorder


def test_an_error_names_the_line_of_its_call() -> None:
    lines = Lines()
    first = spot()
    second, number = spot(), sys._getframe().f_lineno
    lines.note(1, [first, second].__getitem__)
    lines.note(3, [first].__getitem__)
    assert lines.describe(2)["line"] == number
    assert lines.describe(2)["file"] == __file__
    error = lines.error(2, "remote_op_failed", "bad shape")
    assert f"{__file__}:{number}" in str(error)


def test_a_call_of_long_ago_has_no_line() -> None:
    lines = Lines()
    lines.note(100, [].__getitem__)
    assert lines.describe(5) == {}
    assert lines.describe(100) == {}
    assert str(lines.error(5, "remote_op_failed", "bad shape")) == "bad shape"
