"""Traces, known contents, snapshots and moves: what a session is made of can be told again elsewhere."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest
import torch
from executor_fixtures import connect, executors, guest
from executor_guest import CODES, Failed, TestGuest, raw

from dgsf.fabric.contents_keeper import ContentsKeeper
from dgsf.remoting.digest import digest_of
from dgsf.remoting.executor.loop import EXIT_REFUSED
from dgsf.remoting.protocol import BULK_BYTES, FLOAT, TENSOR, Record, Status, absolute, relative
from dgsf.wire.frames import FLAG_MORE, Kind, encode_frame

__all__ = ["connect", "executors", "guest"]


def hole(index: int) -> dict:
    return {TENSOR: index}


def define(number: int, op: str, *args: object, **kwargs: object) -> list:
    return [Record.DEFINE, number, op, list(args), kwargs]


KINDS = [
    define(0, "aten::add.Tensor", hole(0), hole(1)),
    define(1, "aten::mul.Scalar", hole(0), {FLOAT: 0}),
    define(2, "aten::add_.Tensor", hole(0), hole(1)),
    define(3, "aten::view", hole(0), [-1]),
    define(4, "aten::rand", [3]),
]


# --- traces
def test_a_trace_runs_from_its_base_with_the_floats_of_the_run(guest: TestGuest) -> None:
    guest.upload(1, torch.ones(2))
    template = [
        [0, 0, [absolute(1), absolute(1)]],
        [1, 1, [relative(0)], [None]],
        [Record.FREE, [relative(0)]],
        [2, 2, [absolute(1), relative(1)]],
    ]
    guest.send(*KINDS, [Record.TRACE, 7, template])
    guest.send([Record.RUN, 7, 100, 0, 4, [3.0]])
    assert guest.fetch(101).tolist() == [6, 6] and guest.fetch(1).tolist() == [7, 7]
    with pytest.raises(Failed, match="no tensor of handle 100"):
        guest.fetch(100)
    guest.send([Record.RUN, 7, 200, 0, 2, [2.0]], [Record.RUN, 7, 200, 2, 4])
    assert guest.fetch(201).tolist() == [28, 28] and guest.fetch(1).tolist() == [35, 35]


def test_a_failure_inside_a_trace_is_told_with_its_call(guest: TestGuest) -> None:
    guest.upload(1, torch.ones(2))
    guest.upload(2, torch.ones(3))
    guest.send(*KINDS, [Record.TRACE, 1, [[0, 0, [absolute(1), absolute(1)]], [0, 1, [relative(0), absolute(2)]]]])
    guest.send([Record.RUN, 1, 50, 0, 2])
    with pytest.raises(Failed) as failed:
        guest.sync()
    assert failed.value.call == 2 and guest.fetch(50).tolist() == [2, 2]


@pytest.mark.parametrize("run", [[9, 0, 0, 1], [1, 0, 0, 99], [1, 0, -1, 1], [1, None, 0, 1], [1, 0, 0, 1]])
def test_runs_that_make_no_sense_close_the_session(guest: TestGuest, run: list) -> None:
    guest.send(*KINDS, [Record.TRACE, 1, [[1, 0, [absolute(1)], [None]]]], [Record.RUN, *run])
    with pytest.raises(Failed) as failed:
        guest.answer(1)
    assert failed.value.code == "protocol_error"


# --- known contents
def known(handle: int, tensor: torch.Tensor) -> tuple[list, bytes, bytes]:
    data = raw(tensor)
    digest = digest_of(data)
    return [Record.KNOWN, handle, CODES[tensor.dtype], list(tensor.shape), len(data), digest], digest, data


def test_a_missing_content_is_needed_once_and_found_by_the_next_session(connect, tmp_path: Path) -> None:
    first, second = connect(contents=str(tmp_path)), connect(contents=str(tmp_path))
    x, y = torch.randn(50_000), torch.randn(30_000)
    (record, digest, data), (other, other_digest, other_data) = known(1, x), known(2, y)
    first.send(*KINDS, record, [1, 3, [1], [2.0]], other)
    first.send([1, 4, [2], [3.0]], [Record.KNOWN, 5, *record[2:]], [2, 6, [1, 1]])
    needed = [first.answer(0)]
    while len([name for _, names in needed for name in names]) < 2:
        needed.append(first.answer(0))
    assert all(status == Status.NEED for status, _ in needed)
    first.send([Record.SUPPLY, other_digest, len(other_data), 1])
    first.bulk(1, other_data)
    first.send([Record.SUPPLY, digest, len(data), 2])
    first.bulk(2, data)
    assert torch.equal(first.fetch(3), x * 2) and torch.equal(first.fetch(4), y * 3)
    assert torch.equal(first.fetch(1), x + x) and torch.equal(first.fetch(5), x)
    second.send(record)
    assert torch.equal(second.fetch(1), x)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([digest.hex(), other_digest.hex()])


def test_half_a_content_is_nobodys_once_its_executor_is_gone(connect, executors, tmp_path: Path) -> None:
    keeper = ContentsKeeper(tmp_path, "cpu0", budget_bytes=1 << 30)
    folder = keeper.folder(1)
    guest = connect(contents=str(folder))
    record, digest, data = known(1, torch.randn(600_000))
    guest.send(record)
    assert guest.answer(0)[0] == Status.NEED
    guest.send([Record.SUPPLY, digest, len(data), 1])
    guest.bulk(1, data[: 2 * BULK_BYTES])
    deadline = time.monotonic() + 30
    while sum(path.stat().st_size for path in folder.iterdir()) < 2 * BULK_BYTES:
        assert time.monotonic() < deadline
    assert keeper.sweep() == 0
    executors.kill()
    executors.exit_code()
    assert keeper.sweep() >= 2 * BULK_BYTES and not list(folder.iterdir())


def test_a_false_content_is_told_and_the_session_goes_on(guest: TestGuest) -> None:
    x = torch.randn(30_000)
    record, digest, data = known(1, x)
    guest.send(record)
    assert guest.answer(0)[0] == Status.NEED
    guest.send([Record.SUPPLY, digest, len(data), 1])
    guest.bulk(1, b"x" * len(data))
    with pytest.raises(Failed, match="changed on its way") as failed:
        guest.fetch(1)
    assert failed.value.code == "remote_op_failed"
    guest.send([Record.KNOWN, 2, *record[2:]])  # the false bytes were not kept under that name
    assert guest.answer(0)[0] == Status.NEED
    guest.send([Record.SUPPLY, digest, len(data), 2])
    guest.bulk(2, data)
    assert torch.equal(guest.fetch(2), x)


def test_a_content_is_taken_only_if_it_was_asked_for_and_has_the_announced_size(connect) -> None:
    record, digest, data = known(1, torch.randn(30_000))
    for supply, words in (
        ([digest, len(data) + 1, 1], "were announced"),
        ([digest, len(data) - 1, 1], "were announced"),
        ([digest, float(len(data)), 1], "were announced"),
        ([b"x" * 32, len(data), 1], "was not asked for"),
    ):
        guest = connect()
        guest.send(record)
        assert guest.answer(0)[0] == Status.NEED
        guest.send([Record.SUPPLY, *supply])
        with pytest.raises(Failed, match=words):
            guest.answer(1)
    guest = connect()
    guest.send(record)
    assert guest.answer(0)[0] == Status.NEED
    guest.send([Record.SUPPLY, digest, len(data), 1], [Record.SUPPLY, digest, len(data), 2])
    with pytest.raises(Failed, match="was not asked for"):
        guest.answer(1)


def test_a_content_named_in_two_sizes_closes_the_session(guest: TestGuest) -> None:
    record, digest, _ = known(1, torch.randn(30_000))
    guest.send(record, [Record.KNOWN, 2, CODES[torch.float32], [7], 28, digest])
    assert guest.answer(0)[0] == Status.NEED
    with pytest.raises(Failed, match="bytes and 28"):
        guest.answer(0)


def test_a_content_without_room_is_lost_and_the_session_goes_on(connect) -> None:
    guest = connect(memory_bytes=1_000_000)
    x = torch.randn(200_000)
    guest.upload_bulk(1, x)
    guest.sync()
    record, digest, data = known(2, torch.randn(100_000))
    for _ in range(2):
        guest.send(record)
        assert guest.answer(0)[0] == Status.NEED
        guest.send([Record.SUPPLY, digest, len(data), 1])
        guest.bulk(1, data)
        with pytest.raises(Failed) as failed:
            guest.sync()
        assert failed.value.code == "out_of_memory"
    guest.send([Record.FREE, [1]], record)
    assert guest.answer(0)[0] == Status.NEED
    guest.send([Record.SUPPLY, digest, len(data), 1])
    guest.bulk(1, data)
    assert guest.fetch(2).shape == (100_000,)


def test_transfers_under_way_count_as_memory(connect) -> None:
    guest = connect(memory_bytes=1_000_000)
    code = CODES[torch.uint8]
    for number in range(1, 4):
        guest.send([Record.UPLOAD_BULK, number, code, [600_000], 600_000, number])
    for number in range(1, 4):
        guest.bulk(number, bytes(600_000))
    with pytest.raises(Failed) as failed:
        guest.sync()
    assert failed.value.code == "out_of_memory"
    assert guest.fetch(1).numel() == 600_000


# --- snapshots
def snapshot(guest: TestGuest, since: int) -> tuple[list, dict[int, bytes]]:
    head_bytes, size = guest.ask(Record.SNAPSHOT, since)
    data = guest.bulk_answer(guest.requests, size)
    head = msgspec.msgpack.decode(data[:head_bytes])
    rest, pieces = data[head_bytes:], {}
    for number, length, source in head[1]:
        if source is True:
            pieces[number], rest = rest[:length], rest[length:]
    assert not rest
    return head, pieces


def restore(guest: TestGuest, head: list, pieces: dict[int, bytes]) -> None:
    sources = [[number, size, True if source in (None, True) else source] for number, size, source in head[1]]
    packed = msgspec.msgpack.encode([head[0], sources, head[2]])
    data = packed + b"".join(pieces[number] for number, _, source in sources if source is True)
    guest.send([Record.RESTORE, len(packed), len(data), 99])
    guest.bulk(99, data)


def test_a_restored_session_goes_on_as_the_first_would_have(connect) -> None:
    first, second = connect(), connect()
    first.send(*KINDS, [Record.SEED, 3])
    first.upload(1, torch.arange(6.0).reshape(2, 3))
    first.upload(2, torch.ones(6))
    first.send([3, 3, [1]], [0, 90, [3, 99]])
    head, pieces = snapshot(first, 0)
    assert len(head[1]) == 2 and len(pieces) == 2
    first.send([2, 4, [3, 2]], [4, 5, []])
    later, changed = snapshot(first, head[0])
    assert sorted(len(piece) for piece in changed.values()) == [12, 24]
    pieces.update(changed)
    restore(second, later, pieces)
    second.send(*KINDS)
    for each in (first, second):
        each.send([2, 6, [3, 2]], [4, 7, []])
        with pytest.raises(Failed, match="no tensor of handle 99"):
            each.sync()
    for handle in (1, 2, 3, 5, 7):
        assert torch.equal(first.fetch(handle), second.fetch(handle))
    again, changed = snapshot(second, later[0])
    assert again[0] == later[0] + 1 and sorted(len(piece) for piece in changed.values()) == [12, 24]


@pytest.mark.parametrize("in_a_trace", [False, True])
def test_what_a_call_wrote_before_it_failed_is_saved(connect, in_a_trace: bool) -> None:
    first, second = connect(), connect()
    put = define(5, "aten::index_put_", hole(0), [hole(1)], hole(2))
    first.send(*KINDS, put, [Record.TRACE, 1, [[5, 0, [absolute(1), absolute(2), absolute(3)]]]])
    first.upload(1, torch.zeros(4))
    first.upload(2, torch.tensor([0, 1, 9]))
    first.upload(3, torch.ones(3))
    head, pieces = snapshot(first, 0)
    first.send([Record.RUN, 1, 50, 0, 1] if in_a_trace else [5, 50, [1, 2, 3]])
    with pytest.raises(Failed, match="out of bounds"):
        first.sync()
    assert first.fetch(1).tolist() == [1, 1, 0, 0]
    later, changed = snapshot(first, head[0])
    restore(second, later, {**pieces, **changed})
    assert second.fetch(1).tolist() == [1, 1, 0, 0]


def test_restored_tensors_without_bytes_grow_each_on_its_own(connect) -> None:
    first, second = connect(), connect()
    for handle in (1, 2):
        first.upload(handle, torch.empty(0))
    restore(second, *snapshot(first, 0))
    second.send(define(0, "aten::resize_", hole(0), [2]), define(1, "aten::fill_.Scalar", hole(0), {FLOAT: 0}))
    for handle in (1, 2):
        second.send([0, 0, [handle]], [1, 0, [handle], [float(handle)]])
    assert [second.fetch(handle).tolist() for handle in (1, 2)] == [[1, 1], [2, 2]]


def test_zeros_that_have_no_memory_are_saved_as_zeros(connect) -> None:
    first, second = connect(), connect()
    first.send(define(0, "aten::_efficientzerotensor", [50_000]), define(1, "aten::view", hole(0), [-1, 2]))
    first.send([0, 1, []], [1, 2, [1]])  # what the gradient of `sgn` is
    head, pieces = snapshot(first, 0)
    assert len(head[1]) == 1
    restore(second, head, pieces)
    assert not second.fetch(1).any() and second.fetch(2).shape == (25_000, 2)


def _many_storages() -> tuple[bytes, int]:
    head = b"\x93\x01\xdd" + (1_000_000).to_bytes(4, "big") + b"\x93\x00\x00\xc3" * 1_000_000 + b"\x80"
    return head, len(head)


def _more_than_any_machine_has() -> tuple[bytes, int]:
    rest = {"views": [[1, 1, 4, [1], [1], 0, 0]], "failures": [], "untold": None, "contents": {}, "rng": b"", "next": 2}
    head = msgspec.msgpack.encode([1, [[1, 1 << 50, True]], rest])
    return head, len(head) + (1 << 50)


@pytest.mark.parametrize(("make", "lease"), [(_many_storages, 64 << 20), (_more_than_any_machine_has, 1 << 51)])
def test_a_hostile_state_is_refused_in_words_and_at_once(connect, executors, make, lease) -> None:
    guest, (head, size) = connect(memory_bytes=lease), make()
    guest.sync()
    began = time.monotonic()
    guest.send([Record.RESTORE, len(head), size, 1])
    guest.bulk(1, head)
    with pytest.raises(Failed) as failed:
        guest.answer(99)
    assert failed.value.code == "protocol_error"
    assert executors.exit_code() == EXIT_REFUSED
    assert time.monotonic() - began < 1


def test_known_contents_are_named_until_they_are_written(connect, tmp_path: Path) -> None:
    guest = connect(contents=str(tmp_path))
    x = torch.randn(50_000)
    record, digest, data = known(1, x)
    guest.send(*KINDS, record)
    guest.answer(0)
    guest.send([Record.SUPPLY, digest, len(data), 1])
    guest.bulk(1, data)
    head, pieces = snapshot(guest, 0)
    assert head[1][0][2] == digest and not pieces
    other = connect(contents=str(tmp_path))
    restore(other, head, pieces)
    assert torch.equal(other.fetch(1), x)
    guest.send([3, 2, [1]], [2, 3, [2, 2]], [Record.FREE, [2]])
    head, pieces = snapshot(guest, head[0])
    assert head[1][0][2] is True and torch.equal(guest.fetch(1), x + x)


def test_a_state_whose_views_reach_beyond_their_storage_is_refused(connect) -> None:
    first, second = connect(), connect()
    first.upload(1, torch.ones(4))
    head, pieces = snapshot(first, 0)
    head[2]["views"][0][3] = [4000]
    restore(second, head, pieces)
    with pytest.raises(Failed, match="beyond its storage"):
        second.sync()


# --- moves
def test_a_moved_session_goes_on_with_the_next_number(connect) -> None:
    old, new = connect(), connect()
    old.upload(1, torch.randn(600, 700))
    old.send(*KINDS, [Record.SEED, 5], [Record.TRACE, 1, [[1, 0, [absolute(1)], [None]]]], [3, 2, [1]], [0, 3, [1, 77]])
    old.sock.sendall(encode_frame(Kind.STATE, 0))
    flags = FLAG_MORE
    while flags == FLAG_MORE:
        kind, flags, _, body = old.frame()
        assert kind == Kind.STATE and body
        new.sock.sendall(encode_frame(Kind.STATE, 0, body, flags))
    assert new.frame() == (Kind.STATE, 0, 0, b"")
    new.sequence, new.requests = old.sequence, old.requests
    with pytest.raises(Failed) as failed:
        new.sync()
    assert failed.value.call == 2
    assert new.ask(Record.MEMORY, False)[0] == 600 * 700 * 4  # what was alive, and nothing twice
    new.send([2, 4, [2, 2]], [4, 5, []], [Record.RUN, 1, 50, 0, 1, [2.0]])
    torch.manual_seed(5)
    assert torch.equal(new.fetch(5), torch.rand(3))
    assert torch.equal(new.fetch(50), new.fetch(1) * 2) and torch.equal(new.fetch(2), new.fetch(1).reshape(-1))


def test_a_session_in_the_middle_of_a_transfer_does_not_move(guest: TestGuest) -> None:
    data = raw(torch.randn(30_000))
    guest.send([Record.UPLOAD_BULK, 1, 0, [30_000], len(data), 5])
    guest.sock.sendall(encode_frame(Kind.STATE, 0))
    assert guest.frame() == (Kind.STATE, 0, 0, b"")
    guest.bulk(5, data)
    assert raw(guest.fetch(1)) == data
