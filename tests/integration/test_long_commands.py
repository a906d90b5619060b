"""Operations on more tensors than a frame can name: they are sent in several frames, and replayed so."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
import torch

from dgsf.errors import UsageError
from dgsf.remoting.executor.local import LocalExecutors, LocalSpec
from dgsf.remoting.guest import encode
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.kinds import Kind
from dgsf.remoting.guest.session_stream import SessionStream
from dgsf.remoting.protocol import COMMAND_BYTES, TENSOR, Record
from dgsf.wire.frames import FLAG_BULK, FLAG_MORE, MAX_BODY_BYTES, encode_frame
from dgsf.wire.frames import Kind as FrameKind
from tests.support.executor_guest import Failed, TestGuest
from tests.support.inprocess_stream import InProcessStream
from tests.support.lossy_proxy import LossyProxy

MANY = 300_000


@pytest.fixture(scope="module")
def executors() -> Iterator[LocalExecutors]:
    with LocalExecutors() as found:
        yield found


def test_many_tensors_are_stacked_also_after_the_device_was_lost(executors: LocalExecutors) -> None:
    proxy = LossyProxy(executors, LocalSpec(device_options={"threads": 1}), kills=[])
    stream = SessionStream(proxy.guest)
    x = stream.upload(torch.arange(float(MANY)))
    first = stream.call(Kind("aten::unbind.int", [{TENSOR: 0}], outs=MANY), [x])
    holes = [{TENSOR: index} for index in range(MANY)]
    stacked = stream.call(Kind("aten::stack", [holes]), list(range(first, first + MANY)))
    assert torch.equal(stream.fetch(stacked), torch.arange(float(MANY)))
    proxy.kill_now()
    negated = stream.call(Kind("aten::neg", [{TENSOR: 0}]), [stacked])
    assert torch.equal(stream.fetch(negated), -torch.arange(float(MANY)))
    assert stream.traffic["losses"] == 1
    stream.checkpoint()  # its definitions are long, too
    proxy.kill_now()
    assert torch.equal(stream.fetch(negated), -torch.arange(float(MANY)))
    assert stream.traffic["losses"] == 2
    stream.close()
    proxy.join()


def test_too_many_are_refused_where_they_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "MAX_LIST", 5)
    with bind(InProcessStream()) as device:
        parts = torch.arange(6.0, device=device).unbind()
        with pytest.raises(UsageError, match=r"aten::stack of 6 tensors is over the limit of 5 .* in parts"):
            torch.stack(parts)
        assert torch.stack(parts[:5]).sum().item() == 10


@pytest.fixture
def guest(executors: LocalExecutors) -> Iterator[TestGuest]:
    found = TestGuest(executors.connect(LocalSpec()))
    yield found
    found.sock.close()


def pieces(guest: TestGuest, body: bytes, size: int, last: int = 0) -> None:
    for start in range(0, len(body), size):
        guest.sequence += 1
        more = FLAG_MORE if start + size < len(body) else last
        guest.sock.sendall(encode_frame(FrameKind.COMMAND, guest.sequence, body[start : start + size], more))


def test_pieces_of_any_size_make_one_command(guest: TestGuest) -> None:
    pieces(guest, msgspec.msgpack.encode([[Record.SEED, 3], [Record.SYNC, 7]]), 1)
    assert guest.answer(7) is None


def test_what_comes_between_the_pieces_or_never_ends_closes_the_session(guest: TestGuest) -> None:
    pieces(guest, b"\x91", 1, last=FLAG_MORE)
    pieces(guest, b"\x01\x00\x00\x00bytes", 9, last=FLAG_BULK)
    with pytest.raises(Failed, match=r"transfer|in the middle of a command"):
        guest.answer(1)


def test_a_command_is_bounded(guest: TestGuest) -> None:
    for _ in range(COMMAND_BYTES // MAX_BODY_BYTES + 1):
        pieces(guest, bytes(MAX_BODY_BYTES), MAX_BODY_BYTES, last=FLAG_MORE)
    with pytest.raises(Failed, match="bytes of one command are over"):
        guest.answer(1)
