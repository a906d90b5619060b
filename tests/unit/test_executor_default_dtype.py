"""The default dtype that a kind of call says: the executor follows it in that call alone, also after a move."""

from __future__ import annotations

import pytest
import torch
from executor_fixtures import connect, executors, guest
from executor_guest import CODES, Failed, TestGuest

from dgsf.remoting.protocol import TENSOR, Record, absolute
from dgsf.wire.frames import FLAG_MORE, Kind, encode_frame

__all__ = ["connect", "executors", "guest"]

FIRST, SECOND = {TENSOR: 0}, {TENSOR: 1}
PLAIN = [Record.DEFINE, 0, "aten::div.Tensor", [FIRST, FIRST], {}]
DOUBLE = [Record.DEFINE, 1, "aten::div.Tensor", [FIRST, FIRST], {}, CODES[torch.float64]]
BROKEN = [Record.DEFINE, 2, "aten::div.Tensor", [FIRST, SECOND], {}, CODES[torch.float64]]
TRACE = [Record.TRACE, 7, [[0, 0, [absolute(1)]], [1, 1, [absolute(1)]]]]


def dtypes(guest: TestGuest, *handles: int) -> list[torch.dtype]:
    return [guest.fetch(handle).dtype for handle in handles]


def test_only_calls_of_that_kind_are_done_under_it(guest: TestGuest) -> None:
    guest.upload(1, torch.arange(1, 4))
    guest.upload(2, torch.arange(1, 3))
    guest.send(PLAIN, DOUBLE, BROKEN, [1, 10, [1]], [0, 11, [1]], [2, 12, [1, 2]], [0, 13, [1]])
    with pytest.raises(Failed, match="size of tensor"):
        guest.sync()
    assert dtypes(guest, 10, 11, 13) == [torch.float64, torch.float32, torch.float32]


def test_it_moves_with_kinds_and_traces(connect) -> None:
    old, new = connect(), connect()
    old.upload(1, torch.arange(1, 4))
    old.send(PLAIN, DOUBLE, TRACE)
    old.sock.sendall(encode_frame(Kind.STATE, 0))
    flags = FLAG_MORE
    while flags == FLAG_MORE:
        _, flags, _, body = old.frame()
        new.sock.sendall(encode_frame(Kind.STATE, 0, body, flags))
    assert new.frame() == (Kind.STATE, 0, 0, b"")
    new.sequence, new.requests = old.sequence, old.requests
    new.send([1, 10, [1]], [Record.RUN, 7, 50, 0, 2])
    assert dtypes(new, 10, 50, 51) == [torch.float64, torch.float32, torch.float64]


@pytest.mark.parametrize("code", [CODES[torch.int64], CODES[torch.complex64], 99, None, "float64"])
def test_what_cannot_be_one_ends_the_session(guest: TestGuest, code: object) -> None:
    guest.send([*PLAIN, code])
    with pytest.raises(Failed) as failed:
        guest.answer(99)
    assert failed.value.code == "protocol_error"
