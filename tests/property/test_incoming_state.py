"""A state that comes in, cut anywhere: every storage has its bytes, and a head that lies is refused."""

from __future__ import annotations

import contextlib
import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgsf.errors import ProtocolError, SessionRefused
from dgsf.remoting.executor.handles import MAX_FAILURES
from dgsf.remoting.executor.incoming_state import StateTransfer
from dgsf.remoting.executor.limits import Limits
from dgsf.remoting.executor.uploads import Transfers, bytes_of, raw_memory
from dgsf.wire.frames import MAX_BODY_BYTES

USUAL = Limits()
DIGEST = b"\x07" * 32
storages = st.lists(st.one_of(st.binary(max_size=200), st.none()), max_size=8)  # None: by its digest


def incoming(head_bytes: int, size: int, limits: Limits = USUAL) -> StateTransfer:
    return StateTransfer(head_bytes, size, raw_memory(MAX_BODY_BYTES), limits)


def packed(storages: list[list], count: int | None = None, **rest: object) -> bytes:
    """A head, with one view of each storage unless there are to be another count."""
    count = len(storages) if count is None else count
    views = [[n, n, 4, [0], [1], 0, 0] for n in range(count)]
    usual = {"views": views, "failures": [], "untold": None, "contents": {}, "rng": b"", "next": count}
    return msgspec.msgpack.encode([1, storages, usual | rest])


def head_of(contents: list[bytes | None]) -> bytes:
    return packed([[n, len(each or b""), DIGEST if each is None else True] for n, each in enumerate(contents)])


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
    transfer = incoming(len(head), len(data))
    feed(transfer, data, cuts)
    assert transfer.complete and transfer.head[0] == 1
    assert [bytes(bytes_of(piece)) for piece in transfer.pieces] == brought


@pytest.mark.parametrize("said", [5, 7])
def test_a_head_must_describe_as_many_bytes_as_were_announced(said: int) -> None:
    head = packed([[1, said, True]])
    with pytest.raises(ProtocolError, match="fewer or more bytes"):
        feed(incoming(len(head), len(head) + 6), head + b"sixsix", [10])


@pytest.mark.parametrize("content", [[1], [1, [[1, "x", True]], 0], [1, [], {}], [1, 2, 3], {}])
def test_a_head_that_makes_no_sense_is_refused(content: object) -> None:
    head = msgspec.msgpack.encode(content)
    with pytest.raises(ProtocolError):
        feed(incoming(len(head), len(head) + 6), head + b"sixsix", [3])


@pytest.mark.parametrize("head_bytes", [0, -1, 11, "1"])
def test_a_state_without_room_for_its_head_is_none(head_bytes: int) -> None:
    with pytest.raises(ProtocolError):
        incoming(head_bytes, 10)


def test_a_head_has_no_more_bytes_than_so_many_handles_need() -> None:
    few = Limits(handles=10)
    incoming(few.head_bytes, 1 << 30, few)
    with pytest.raises(SessionRefused, match="of a state's head"):
        incoming(few.head_bytes + 1, 1 << 30, few)


@pytest.mark.parametrize(
    "head",
    [
        packed([[n, 0, True] for n in range(20)], count=19),
        packed([], count=31),
        packed([], contents=dict.fromkeys(range(20), DIGEST), count=19),
        packed([], failures=[[0, 0, 0, "", ""]] * (MAX_FAILURES + 1)),
        packed([], views={}),
        packed([], views="none"),
    ],
    ids=["storages", "tensors", "contents", "failures", "another kind of container", "no container"],
)
def test_a_head_of_more_than_a_session_can_have_is_refused(head: bytes) -> None:
    with pytest.raises((ProtocolError, SessionRefused)):
        feed(incoming(len(head), len(head), Limits(handles=30)), head, [len(head)])


def test_what_is_refused_for_its_number_costs_no_memory() -> None:
    many = 300_000
    storages = b"\xdd" + many.to_bytes(4, "big") + b"\x93\x00\x00\xc3" * many
    empty = packed([], junk=[[]] * many)
    for head in (empty.replace(b"\x01\x90", b"\x01" + storages, 1), empty):
        transfer = incoming(len(head), len(head))
        memory = transfer.take(len(head))
        memory[:] = head
        tracemalloc.start()
        try:
            with contextlib.suppress(ProtocolError):
                transfer.landed()
            assert tracemalloc.get_traced_memory()[1] < 3 * len(head) + 100_000
        finally:
            tracemalloc.stop()


def test_a_storage_without_bytes_gets_no_memory() -> None:
    head = packed([[n, 0, True] for n in range(3)])
    transfer = incoming(len(head), len(head))
    feed(transfer, head, [len(head)])
    assert len(transfer.pieces) == 3 and len({piece.untyped_storage()._cdata for piece in transfer.pieces}) == 1


def test_a_state_counts_with_all_its_bytes_while_it_comes() -> None:
    transfers = Transfers(1)
    transfers.open(1, 100, make=lambda size: incoming(10, size))
    assert transfers.bytes == 100
    transfers.close(1)
    assert transfers.bytes == 0


def test_states_on_their_way_hold_no_more_than_what_is_counted() -> None:
    transfers, size = Transfers(9), MAX_BODY_BYTES
    made = [
        transfers.open(n, size, make=lambda size: StateTransfer(size, size, transfers.passage)) for n in range(4)
    ] + [transfers.open(n, size, unwanted=True) for n in range(4, 8)]
    assert transfers.bytes == 4 * size
    assert len({each.raw.data_ptr() for each in made}) == 1  # one buffer for all


def test_states_that_come_at_the_same_time_do_not_mix() -> None:
    transfers = Transfers(9)
    heads = {n: packed([[n, 3, True]]) for n in range(3)}
    made = [
        transfers.open(n, len(head) + 3, make=lambda size, head=head: StateTransfer(len(head), size, transfers.passage))
        for n, head in heads.items()
    ]
    for part in (slice(0, 9), slice(9, None)):
        for n, head in heads.items():
            data = (head + bytes([n]) * 3)[part]
            transfers.sink(n, len(data))[:] = data
            transfers.arrived(n)
    assert [bytes(bytes_of(each.pieces[0])) for each in made] == [bytes([n]) * 3 for n in range(3)]
