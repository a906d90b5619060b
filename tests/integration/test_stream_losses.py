"""The guest's stream when its device or proxy is lost: checkpoints, replay, and calls that crash."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
import torch

from dgsf.core.checkpointing import CheckpointPolicy
from dgsf.errors import OpCrashed, RemoteOpError, SessionLost
from dgsf.remoting.executor.local import LocalExecutors, LocalSpec
from dgsf.remoting.guest.answers import Question
from dgsf.remoting.guest.kinds import Kind
from dgsf.remoting.guest.modes import parse_modes
from dgsf.remoting.guest.session_stream import SessionStream
from dgsf.remoting.protocol import FLOAT, TENSOR
from tests.support.lossy_proxy import lossy_session

A, B = {TENSOR: 0}, {TENSOR: 1}
ADD = Kind("aten::add.Tensor", [A, B])
SCALE = Kind("aten::mul.Scalar", [A, {FLOAT: 0}])
GROW = Kind("aten::add_.Tensor", [A, B], outs=0)
BROKEN = Kind("aten::view", [A, [7, 13]])
DIVIDE = Kind("aten::div.Tensor_mode", [A, B], {"rounding_mode": "trunc"})


@pytest.fixture(scope="module")
def executors() -> Iterator[LocalExecutors]:
    with LocalExecutors() as found:
        yield found


def fetch_often(stream: SessionStream, handle: int) -> None:
    for _ in range(1000):
        stream.fetch(handle)


def test_a_proxy_that_is_gone_is_one_exception_that_says_what_to_do(executors: LocalExecutors) -> None:
    sock = executors.connect(LocalSpec())
    stream = SessionStream(sock)
    x = stream.upload(torch.ones(4))
    stream.sync()
    sock.shutdown(socket.SHUT_RDWR)
    for _ in range(2):
        with pytest.raises(
            SessionLost, match="the proxy of this session is gone and its device state with it; attach again"
        ) as caught:
            stream.fetch(x)
        assert caught.value.__cause__ is None and caught.value.__suppress_context__
    stream.close()


def test_an_error_that_a_checkpoint_heard_of_first_is_told_once(executors: LocalExecutors) -> None:
    stream = SessionStream(executors.connect(LocalSpec()))
    x = stream.upload(torch.ones(4))
    stream.sync()
    broken = stream.call(BROKEN, [x])
    stream._link.saver._begin()  # its SYNC comes before the program's question
    with pytest.raises(RemoteOpError):
        stream.fetch(broken)
    assert torch.equal(stream.fetch(x), torch.ones(4))
    stream.close()


def test_without_a_journal_a_loss_is_final(executors: LocalExecutors) -> None:
    with lossy_session(executors, LocalSpec(), []) as proxy:
        stream = SessionStream(proxy.guest, parse_modes("full,-survival"))
        x = stream.upload(torch.ones(4))
        stream.sync()
        proxy.kill_now()
        with pytest.raises(SessionLost, match="killed"):
            fetch_often(stream, x)
        stream.close()


def test_a_checkpoint_that_is_asked_for_has_all_until_then_also_while_another_is_under_way(
    executors: LocalExecutors,
) -> None:
    with lossy_session(executors, LocalSpec(device_options={"threads": 1}), []) as proxy:
        stream = SessionStream(proxy.guest)
        handle = stream.upload(torch.ones(1000))
        stream._link.saver._begin()
        for _ in range(5):
            handle = stream.call(ADD, [handle, handle])
        stream.checkpoint()
        assert stream._link.saved.calls == stream.counts()[0] == 5
        assert stream.traffic["checkpoints"] == 2
        assert not list(stream._link.journal.replay())
        proxy.kill_now()
        assert stream.fetch(handle)[0].item() == 32.0
        assert stream.traffic["losses"] == 1
        stream.close()


def test_checkpoints_bound_the_journal(executors: LocalExecutors) -> None:
    policy = CheckpointPolicy(replay_seconds=1e9, share=0.0, journal_bytes=2_000_000)
    with lossy_session(executors, LocalSpec(), []) as proxy:
        stream = SessionStream(proxy.guest, parse_modes("full,-known"), policy)
        total = stream.upload(torch.zeros(100_000))
        for turn in range(30):
            batch = stream.upload(torch.full((100_000,), float(turn)))
            stream.call(GROW, [total, batch])
            stream.free(batch)
            stream.sync()
        assert stream.traffic["checkpoints"] >= 3
        assert stream._link.journal.bytes <= 8_000_000
        proxy.kill_now()
        assert stream.fetch(total)[0].item() == sum(range(30))
        assert stream.traffic["losses"] == 1
        stream.close()


def test_a_state_that_shrinks_leaves_no_memory_of_larger_ones(executors: LocalExecutors) -> None:
    policy = CheckpointPolicy(replay_seconds=1e9, share=0.0)
    stream = SessionStream(executors.connect(LocalSpec()), parse_modes("full,-known"), policy)
    for count in (2_000_000, 1_500_000, 1_100_000):
        kept = stream.upload(torch.rand(count))
        stream.checkpoint()
        stream.free(kept)
    held = stream._link.saver._memory._bytes
    assert 4_400_000 <= held <= 1.15 * 4_400_000  # the last, rounded up
    stream.close()


def test_a_checkpoint_that_was_complete_when_its_device_was_lost_is_the_one_to_start_from(
    executors: LocalExecutors,
) -> None:
    policy = CheckpointPolicy(replay_seconds=0.0, share=1e9)
    with lossy_session(executors, LocalSpec(), []) as proxy:
        stream = SessionStream(proxy.guest, policy=policy)
        total, one = stream.upload(torch.zeros(4)), stream.upload(torch.ones(4))
        for _ in range(10):
            stream.call(GROW, [total, one])
        stream.sync()  # and then one is begun, which nobody waits for
        saving = stream._link.saver._saving
        assert saving is not None
        _until_there(saving.state)
        proxy.kill_now()
        assert stream.fetch(total)[0].item() == 10
        assert stream.traffic["checkpoints"] == 1 and stream.traffic["losses"] == 1
        stream.close()


def test_a_program_that_asks_for_nothing_is_not_saved_again_and_again(executors: LocalExecutors) -> None:
    seconds = 0.0
    policy = CheckpointPolicy(replay_seconds=4.0, share=1.0)
    stream = SessionStream(executors.connect(LocalSpec()), parse_modes("full"), policy, now=lambda: seconds)
    total, one = stream.upload(torch.zeros(4)), stream.upload(torch.ones(4))
    for _ in range(240):  # a minute of work, by its own clock, and a checkpoint takes none of it
        stream.call(GROW, [total, one])
        stream.flush()
        saving = stream._link.saver._saving
        if saving is not None:
            _until_there(saving.state)
        seconds += 0.25
    assert 5 <= stream.traffic["checkpoints"] <= 60 / 4
    assert stream.fetch(total)[0].item() == 240
    stream.close()


def _until_there(question: Question, deadline: float = 30.0) -> None:
    """Its answer is read by a thread of the checkpoint's own."""
    ends = time.monotonic() + deadline
    while not question.done:
        assert time.monotonic() < ends
        time.sleep(0.001)


def crash(stream: SessionStream, lowest: int, minus_one: int) -> int:
    """The smallest int32 by -1: a kernel of torch divides without a look, and the processor ends the process."""
    return stream.call(DIVIDE, [lowest, minus_one])


@pytest.mark.parametrize("modes", ["full", "full,-traces,-coalesce"])
def test_a_call_that_crashes_two_devices_is_not_tried_on_a_third(executors: LocalExecutors, modes: str) -> None:
    with lossy_session(executors, LocalSpec(), []) as proxy:
        stream = SessionStream(proxy.guest, parse_modes(modes))
        lowest = stream.upload(torch.full((4,), -(2**31), dtype=torch.int32))
        minus_one = stream.upload(torch.full((4,), -1, dtype=torch.int32))
        one = stream.upload(torch.ones(4))
        for _ in range(5):
            for _ in range(10):
                stream.free(stream.call(ADD, [one, one]))
            stream.sync()
        for _ in range(10):
            stream.free(stream.call(ADD, [one, one]))
        crash(stream, lowest, minus_one)
        stream.call(ADD, [one, one])
        for _ in range(2):
            with pytest.raises(OpCrashed, match=r"aten::div\.Tensor_mode crashed .* on two devices") as caught:
                stream.sync()
            assert caught.value.details["function"] == "crash"
        assert proxy.lost == 2
        stream.close()


def test_a_crash_that_does_not_come_again_costs_nothing_but_its_replay(executors: LocalExecutors) -> None:
    with lossy_session(executors, LocalSpec(), []) as proxy:
        stream = SessionStream(proxy.guest)
        total, one = stream.upload(torch.zeros(4)), stream.upload(torch.ones(4))
        for turn in range(6):
            proxy.blame_next()
            stream.call(GROW, [total, one])
            stream.call(BROKEN, [one])
            proxy.kill_now()
            stream.call(GROW, [total, one])
            with pytest.raises(RemoteOpError, match="shape"):
                stream.sync()
            assert stream.fetch(total).tolist() == [2.0 * (turn + 1)] * 4
        assert proxy.lost == 6
        stream.close()


def test_runs_with_changing_floats_are_repeated_step_by_step_as_they_were(executors: LocalExecutors) -> None:
    def totals(kill_at: int | None) -> list[float]:
        with lossy_session(executors, LocalSpec(), []) as proxy:
            stream = SessionStream(proxy.guest, policy=CheckpointPolicy(replay_seconds=1e9, share=0.0))
            total, one = stream.upload(torch.zeros(4)), stream.upload(torch.ones(4))
            seen = []
            for turn in range(8):
                for place in range(1, 6):
                    part = stream.call(SCALE, [one], (turn + place / 8,))
                    stream.call(GROW, [total, part])
                    stream.free(part)
                if turn == kill_at:
                    proxy.blame_next()
                    stream.flush()
                    proxy.kill_now()
                seen.append(float(stream.fetch(total)[0]))
            assert proxy.lost == (kill_at is not None)
            stream.close()
            return seen

    assert totals(6) == totals(None)
