"""A state that comes in, cut anywhere: every storage has its bytes, and a head that lies is refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgsf.errors import ProtocolError
from dgsf.remoting.executor.incoming_state import StateTransfer
from dgsf.remoting.executor.uploads import Transfers, bytes_of

DIGEST = b"\x07" * 32
storages = st.lists(st.one_of(st.binary(max_size=200), st.none()), max_size=8)  # None: by its digest


def head_of(contents: list[bytes | None]) -> bytes:
    named = [[n, len(each or b""), DIGEST if each is None else True] for n, each in enumerate(contents)]
    return msgspec.msgpack.encode([1, named, {}])


def feed(transfer: StateTransfer, data: bytes, cuts: list[int]) -> None:
    position, turn = 0, 0
    while position < len(data):
        size = min(cuts[turn % len(cuts)], len(data) - position)
        transfer.take(size)[:] = data[position : position + size]
        transfer.landed()
        position, turn = position + size, turn + 1


@given(storages, st.lists(st.integers(1, 150), min_size=1, max_size=6))
def test_each_storage_has_its_bytes_however_they_were_cut(contents: list[bytes | None], cuts: list[int]) -> None:
    head, brought = head_of(contents), [each for each in contents if each is not None]
    data = head + b"".join(brought)
    transfer = StateTransfer(len(head), len(data))
    feed(transfer, data, cuts)
    assert transfer.complete and transfer.head[0] == 1
    assert [bytes(bytes_of(piece)) for piece in transfer.pieces] == brought


@pytest.mark.parametrize("said", [5, 7])
def test_a_head_must_describe_as_many_bytes_as_were_announced(said: int) -> None:
    head = msgspec.msgpack.encode([1, [[1, said, True]], {}])
    with pytest.raises(ProtocolError, match="fewer or more bytes"):
        feed(StateTransfer(len(head), len(head) + 6), head + b"sixsix", [10])


@pytest.mark.parametrize("content", [[1], [1, [[1, "x", True]], 0], [1, 2, 3], {}])
def test_a_head_that_makes_no_sense_is_refused(content: object) -> None:
    head = msgspec.msgpack.encode(content)
    with pytest.raises(ProtocolError):
        feed(StateTransfer(len(head), len(head) + 6), head + b"sixsix", [3])


@pytest.mark.parametrize("head_bytes", [0, -1, 11, "1"])
def test_a_state_without_room_for_its_head_is_none(head_bytes: int) -> None:
    with pytest.raises(ProtocolError):
        StateTransfer(head_bytes, 10)


def test_a_state_counts_with_all_its_bytes_while_it_comes() -> None:
    transfers = Transfers(1)
    transfers.open(1, 100, make=lambda size: StateTransfer(10, size))
    assert transfers.bytes == 100
    transfers.close(1)
    assert transfers.bytes == 0
