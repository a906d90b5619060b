"""A session whose host is short of memory: the program goes on, survival gives way, and comes back when it can."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from dgsf.core.checkpointing import CheckpointPolicy, survival_bytes
from dgsf.errors import SessionLost
from dgsf.remoting.executor.local import LocalExecutors, LocalSpec
from dgsf.remoting.guest.kinds import Kind
from dgsf.remoting.guest.modes import parse_modes
from dgsf.remoting.guest.room import CountedRoom, NoRoom, Room
from dgsf.remoting.guest.session_stream import SessionStream
from dgsf.remoting.protocol import TENSOR
from tests.support.lossy_proxy import lossy_session
from tests.support.short_of_memory import LEASE, MIB

GROW = Kind("aten::add_.Tensor", [{TENSOR: 0}, {TENSOR: 1}], outs=0)
SPEC = LocalSpec(device_options={"threads": 1})
BATCH = 100_000  # numbers of four bytes
BOUND = 2_000_000
RARELY = CheckpointPolicy(replay_seconds=1e9, share=0.0, journal_bytes=BOUND)


class Scarce(Room):
    """Nothing as large as a state, as long as it says so."""

    def __init__(self) -> None:
        self.largest = 500_000

    def new(self, size: int) -> torch.Tensor:
        if size > self.largest:
            raise NoRoom("the test says so")
        return super().new(size)


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture(scope="module")
def executors() -> Iterator[LocalExecutors]:
    with LocalExecutors() as found:
        yield found


def feed(stream: SessionStream, total: int, turns: range, sync: bool = True) -> None:
    """Batches that are added up; the journal keeps its bound all the time."""
    for turn in turns:
        batch = stream.upload(torch.full((BATCH,), float(turn)))
        stream.call(GROW, [total, batch])
        stream.free(batch)
        if sync:
            stream.sync()
        else:
            stream.flush()
        assert stream._link.kept_bytes <= BOUND


def fetch_often(stream: SessionStream, handle: int) -> None:
    for _ in range(1000):
        stream.fetch(handle)


def large(stream: SessionStream) -> int:
    """A tensor that makes the state larger than there is room for; written there, so that it is no content."""
    total = stream.upload(torch.zeros(1_000_000))
    stream.call(GROW, [total, total])
    return total


@pytest.mark.parametrize("modes", ["full", "full,-known"])
@pytest.mark.parametrize("sync", [True, False])
def test_without_memory_for_a_checkpoint_the_program_goes_on_and_the_journal_keeps_its_bound(
    executors: LocalExecutors, caplog: pytest.LogCaptureFixture, modes: str, sync: bool
) -> None:
    room = Scarce()
    with caplog.at_level(logging.WARNING), lossy_session(executors, SPEC, []) as proxy:
        stream = SessionStream(proxy.guest, parse_modes(modes), RARELY, room=room)
        room.largest = 4_000_000  # the upload itself
        total = large(stream)
        room.largest, before = 500_000, stream.traffic["checkpoints"]
        small = stream.upload(torch.zeros(BATCH))
        feed(stream, small, range(40), sync)
        assert stream.fetch(small)[0].item() == sum(range(40))
        assert stream.traffic["checkpoints"] == before and stream._link.saver._saving is None
        proxy.kill_now()
        with pytest.raises(SessionLost, match=r"was lost, and its state could not be kept \(the test says so\)"):
            fetch_often(stream, total)
        stream.close()
    told = [record.getMessage() for record in caplog.records if record.name.startswith("dgsf")]
    assert len(told) == 1 and "a loss of its device is final" in told[0]


@pytest.mark.parametrize("modes", ["full", "full,-known"])
def test_survival_is_back_once_there_is_memory(executors: LocalExecutors, modes: str) -> None:
    room, clock = Scarce(), Clock()
    with lossy_session(executors, SPEC, []) as proxy:
        stream = SessionStream(proxy.guest, parse_modes(modes), RARELY, clock, room=room)
        room.largest = 4_000_000
        weights = stream.upload(torch.arange(1_000_000.0))  # a content that is dropped when survival gives way
        total = large(stream)
        room.largest = 500_000
        small = stream.upload(torch.zeros(BATCH))
        feed(stream, small, range(20))
        assert stream._link.adrift and not stream._link.journal.keeping
        room.largest = 100_000_000
        clock.seconds += 1000.0
        stream.checkpoint()
        assert not stream._link.adrift
        feed(stream, small, range(20, 30))
        proxy.kill_now()
        assert stream.fetch(small)[0].item() == sum(range(30))
        assert stream.fetch(weights)[-1].item() == 999_999.0
        assert stream.fetch(total).abs().max().item() == 0.0
        assert stream.traffic["losses"] == 1
        stream.close()


def test_one_that_came_to_nothing_costs_the_attempt_and_the_journal_is_good_for_a_loss(
    executors: LocalExecutors,
) -> None:
    room, clock = Scarce(), Clock()
    policy = CheckpointPolicy(replay_seconds=1e9, share=0.0)
    with lossy_session(executors, SPEC, []) as proxy:
        stream = SessionStream(proxy.guest, parse_modes("full,-known"), policy, clock, room=room)
        room.largest = 100_000_000
        total, one = stream.upload(torch.zeros(1_000_000)), stream.upload(torch.ones(1_000_000))
        stream.checkpoint()
        room.largest = 500_000
        for _ in range(3):
            stream.call(GROW, [total, one])
            stream.checkpoint()
        assert stream.traffic["checkpoints"] == 1 and not stream._link.adrift
        proxy.kill_now()
        assert stream.fetch(total)[7].item() == 3
        assert stream.traffic["losses"] == 1
        room.largest = 100_000_000
        stream.checkpoint()
        assert stream.traffic["checkpoints"] == 2
        stream.close()


def test_a_snapshot_that_cannot_be_taken_in_is_thrown_away(
    executors: LocalExecutors, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise MemoryError

    with lossy_session(executors, SPEC, []) as proxy:
        stream = SessionStream(proxy.guest, policy=RARELY)
        total, one = stream.upload(torch.zeros(4)), stream.upload(torch.ones(4))
        stream.call(GROW, [total, one])
        with monkeypatch.context() as patch:
            patch.setattr("dgsf.remoting.guest.saving.absorb", broken)
            stream.checkpoint()
        stream.call(GROW, [total, one])
        proxy.kill_now()
        assert stream.fetch(total)[0].item() == 2
        assert stream.traffic["losses"] == 1 and stream.traffic["checkpoints"] == 0
        stream.close()


def test_a_checkpoint_whose_thread_cannot_start_is_tried_again(
    executors: LocalExecutors, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    clock = Clock()
    with lossy_session(executors, SPEC, []) as proxy:
        stream = SessionStream(proxy.guest, policy=RARELY, now=clock)
        total, one = stream.upload(torch.zeros(4)), stream.upload(torch.ones(4))
        with monkeypatch.context() as patch:
            patch.setattr("dgsf.remoting.guest.saving.threading.Thread.start", none_left)
            stream.checkpoint()
        stream.call(GROW, [total, one])
        assert stream.fetch(total)[0].item() == 1
        stream.checkpoint()
        assert stream.traffic["checkpoints"] == 1
        stream.close()


def test_uploads_that_nobody_asks_about_wait_for_a_checkpoint_rather_than_pile_up(executors: LocalExecutors) -> None:
    room = CountedRoom(25_000_000)  # half of what passes through
    with lossy_session(executors, SPEC, []) as proxy:
        stream = SessionStream(proxy.guest, parse_modes("full"), RARELY, room=room)
        total = stream.upload(torch.zeros(BATCH))
        feed(stream, total, range(100), sync=False)
        assert stream.traffic["checkpoints"] >= 100 * BATCH * 4 // BOUND
        proxy.kill_now()
        assert stream.fetch(total)[0].item() == sum(range(100))
        assert stream.traffic["losses"] == 1
        stream.close()


def test_without_survival_contents_do_not_pile_up_either(executors: LocalExecutors) -> None:
    stream = SessionStream(executors.connect(SPEC), parse_modes("full,-survival"))
    total = stream.upload(torch.zeros(1_000_000))
    for turn in range(150):
        batch = stream.upload(torch.full((1_000_000,), float(turn)))
        stream.call(GROW, [total, batch])
        stream.free(batch)
        assert stream._link.kept_bytes <= CheckpointPolicy().journal_bytes
    assert stream.fetch(total)[0].item() == sum(range(150))
    stream.close()


# --- under a limit of the kernel's, in a process of its own -----------------------------------
def run(program: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.support.short_of_memory", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return dict(json.loads(done.stdout))


def test_a_function_with_more_on_its_device_than_memory_of_its_own_survives_and_keeps_all_of_that() -> None:
    told = run("large state")
    assert told["right"] and told["checkpoints"] >= 3 and told["losses"] == 1
    assert told["held"] >= 192 * MIB
    assert told["held"] == told["raised"] <= survival_bytes(LEASE)
    assert "memory" in told["too much"]  # its own limit is where it was


def test_weights_that_moved_to_the_device_are_not_taken_from_a_functions_memory() -> None:
    assert run("weights") == {"found": [0.0, 1.0, 2.0, 3.0, 4.0], "losses": 1}


def test_a_function_streams_more_than_its_memory_through_it() -> None:
    told = run("batches")
    assert told["total"] == sum(range(120)) and told["losses"] == 1


def test_a_limited_program_gets_torchs_own_error_for_its_own_tensors_and_none_for_the_platforms() -> None:
    told = run("limited")
    assert told["before"] == [0, True]
    assert "can't allocate memory" in told["own"]
    assert told["value"] == told["again"] == 4.0
    assert told["after"] == 1 and told["losses"] == 1
    assert told["threads"] == 0
