"""Whatever bytes a guest sends, its executor answers with typed errors or closes; the process never crashes.

Each example is a session of its own in a fresh process.  It ends in one of two ways: the executor still answers
a sync, or it said why it closed the connection and ended with the code for that.  Nothing may end by a signal.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator

import msgspec
import pytest
import torch
from executor_guest import CODES, Closed, TestGuest, raw
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dgsf.remoting.digest import digest_of
from dgsf.remoting.executor.local import LocalExecutors, LocalSpec
from dgsf.remoting.executor.loop import EXIT_REFUSED
from dgsf.remoting.protocol import BULK_HEADER, CONSTANT, FLOAT, TENSOR, Record, absolute, relative
from dgsf.wire.frames import FLAG_BULK, HEADER, Kind

FUZZ = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
LEASE = 32 << 20


@pytest.fixture(scope="module")
def executors() -> Iterator[LocalExecutors]:
    with LocalExecutors() as running:
        yield running


def ends_well(executors: LocalExecutors, pieces: list[bytes]) -> None:
    """Send it all, then see: an answer to a sync, or a reason and a closed connection."""
    guest = TestGuest(executors.connect(LocalSpec(memory_bytes=LEASE, device_options={"threads": 1})))
    with guest.sock, contextlib.suppress(Closed, ConnectionError):
        for piece in pieces:
            guest.sock.sendall(piece)
        guest.sock.shutdown(socket.SHUT_WR)
        guest.read_to_the_end()
    assert executors.exit_code() in (0, EXIT_REFUSED)


# --- frames
def frame(kind: int, flags: int, stream: int, body: bytes, length: int | None = None) -> bytes:
    return HEADER.pack(len(body) if length is None else length, kind, flags, 0, stream) + body


numbers = st.integers(-3, 40) | st.integers(-(1 << 40), 1 << 63)
simple = st.none() | st.booleans() | numbers | st.floats() | st.text(max_size=5) | st.binary(max_size=20)
trees = st.recursive(
    simple,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=8,
)


@FUZZ
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3), st.integers(0, 4), st.binary(max_size=60)), max_size=6)
)
def test_any_frames(executors: LocalExecutors, frames: list) -> None:
    ends_well(executors, [frame(*each) for each in frames])


@FUZZ
@given(st.lists(trees, max_size=5))
def test_any_message_packs(executors: LocalExecutors, bodies: list) -> None:
    encode = msgspec.msgpack.Encoder(enc_hook=str).encode
    ends_well(executors, [frame(Kind.COMMAND, 0, 1 + at, _packed(encode, body)) for at, body in enumerate(bodies)])


def _packed(encode, body: object) -> bytes:
    try:
        return encode([body])
    except (OverflowError, UnicodeEncodeError):
        return b"\x90"


# --- records
codes = st.integers(-18, 3)
DIGESTS = st.sampled_from([digest_of(bytes(32)), bytes(32), bytes(31)])
records = st.one_of(
    st.tuples(codes, trees, trees, trees),
    st.tuples(codes, numbers, numbers, st.lists(numbers, max_size=3), st.lists(st.floats(), max_size=2)),
    st.tuples(
        st.just(int(Record.UPLOAD_BULK)), numbers, st.integers(-1, 25), st.lists(numbers, max_size=3), numbers, numbers
    ),
    st.tuples(
        st.just(int(Record.KNOWN)),
        numbers,
        st.integers(0, 25),
        st.lists(numbers, max_size=2),
        numbers,
        st.binary(max_size=33),
    ),
    st.tuples(st.just(int(Record.KNOWN)), numbers, st.just(0), st.just([8]), st.sampled_from([32, 33]), DIGESTS),
    st.tuples(st.just(int(Record.SUPPLY)), DIGESTS, st.sampled_from([32, 33, 0, -1, None, 1 << 62]), numbers),
    st.tuples(st.just(int(Record.SNAPSHOT)), numbers, numbers),
    st.tuples(st.just(int(Record.RESTORE)), numbers, numbers, numbers),
    st.tuples(st.just(int(Record.RUN)), st.integers(0, 2), numbers, numbers, numbers),
)


@FUZZ
@given(st.lists(records, max_size=8))
def test_any_records_after_a_good_start(executors: LocalExecutors, wild: list) -> None:
    pieces = [frame(Kind.COMMAND, 0, 1, msgspec.msgpack.encode(good_start()))]
    for at, record in enumerate(wild):
        try:
            body = msgspec.msgpack.encode([list(record)])
        except (OverflowError, UnicodeEncodeError):
            body = b"\x90"
        pieces.append(frame(Kind.COMMAND, 0, 2 + at, body))
    ends_well(executors, pieces)


def good_start() -> list:
    x = torch.ones(2, 3)
    return [
        [Record.UPLOAD, 1, CODES[x.dtype], [2, 3], raw(x)],
        [Record.UPLOAD, 2, CODES[torch.int64], [2], raw(torch.tensor([0, 1]))],
        [Record.DEFINE, 0, "aten::add.Tensor", [{TENSOR: 0}, {TENSOR: 1}], {}],
        [Record.DEFINE, 1, "aten::mul.Scalar", [{TENSOR: 0}, {FLOAT: 0}], {}],
        [Record.DEFINE, 2, "aten::cat", [[{TENSOR: 0}, {TENSOR: 1}]], {}],
        [
            Record.TRACE,
            1,
            [[0, 0, [absolute(1), absolute(1)]], [1, 1, [relative(0)], [None]], [Record.FREE, [relative(0)]]],
        ],
    ]


# --- operators
SIZES = st.lists(st.sampled_from([-1, 0, 1, 2, 3, 1000, 1 << 20, 1 << 40, 1 << 62]), max_size=4)
OPS = st.sampled_from([
    ("aten::as_strided", 1, [SIZES, SIZES, st.integers(-5, 100)]),
    ("aten::empty.memory_format", 0, [SIZES]),
    ("aten::zeros", 0, [SIZES]),
    ("aten::full", 0, [SIZES, st.floats(-5, 5)]),
    ("aten::view", 1, [SIZES]),
    ("aten::expand", 1, [SIZES]),
    ("aten::repeat", 1, [SIZES]),
    ("aten::resize_", 1, [SIZES]),
    ("aten::select.int", 1, [st.integers(-5, 5), st.integers(-9, 9)]),
    ("aten::slice.Tensor", 1, [st.integers(-4, 4), st.integers(-9, 9), st.integers(-9, 9), st.integers(-2, 3)]),
    ("aten::index_select", 2, []),
    ("aten::gather", 1, [st.integers(-3, 3)]),
    ("aten::embedding", 2, []),
    ("aten::mm", 2, []),
    ("aten::sum.dim_IntList", 1, [SIZES]),
    ("aten::split_with_sizes", 1, [SIZES]),
    ("aten::set_.source_Tensor", 2, []),
    ("aten::from_file", 0, [st.just("/etc/passwd")]),
    ("aten::constant_pad_nd", 1, [SIZES]),
    ("aten::arange", 0, [st.sampled_from([3, -1, 1 << 40, 1e300])]),
])  # fmt: skip


@st.composite
def programs(draw: st.DrawFn) -> list:
    made = good_start()
    for at in range(draw(st.integers(1, 6))):
        op, tensors, rest = draw(OPS)
        arguments = [{TENSOR: place} for place in range(tensors)] + [draw(each) for each in rest]
        handles = draw(st.lists(st.sampled_from([1, 2, 3, 10, 11, 12, 999]), min_size=tensors, max_size=tensors))
        made += [[Record.DEFINE, 50 + at, op, arguments, {}], [50 + at, 10 + at, handles]]
    return [*made, [Record.SYNC, 1], [Record.FETCH, 2, 10], [Record.META, 3, 11], [Record.SNAPSHOT, 4, 0]]


@FUZZ
@given(programs())
def test_operators_with_arguments_out_of_bounds(executors: LocalExecutors, program: list) -> None:
    ends_well(executors, [frame(Kind.COMMAND, 0, 1, msgspec.msgpack.encode(program))])


# --- a good session, damaged
def good_session() -> list[bytes]:
    big = torch.arange(40_000.0)
    body = BULK_HEADER.pack(9) + raw(big)
    upload = [Record.UPLOAD_BULK, 30, CODES[big.dtype], [40_000], big.nbytes, 9]
    constant = {CONSTANT: [CODES[torch.float32], [], raw(torch.tensor(2.0))]}
    calls = [
        [Record.DEFINE, 7, "aten::mul.Tensor", [{TENSOR: 0}, constant], {}],
        [7, 31, [30]],
        [Record.RUN, 1, 100, 0, 3, [2.0]],
        [Record.FREE, [100, 30]],
        [Record.SNAPSHOT, 5, 0],
        [Record.FETCH, 6, 31],
    ]
    return [
        frame(Kind.COMMAND, 0, 1, msgspec.msgpack.encode(good_start())),
        frame(Kind.COMMAND, 0, 2, msgspec.msgpack.encode([upload])),
        frame(Kind.COMMAND, FLAG_BULK, 3, body),
        frame(Kind.COMMAND, 0, 4, msgspec.msgpack.encode(calls)),
    ]


@FUZZ
@given(st.randoms(use_true_random=False), st.integers(1, 6))
def test_a_recording_with_flipped_bytes(executors: LocalExecutors, source: random.Random, flips: int) -> None:
    pieces = [bytearray(piece) for piece in good_session()]
    for _ in range(flips):
        piece = source.choice([each for each in pieces if len(each) < 2000] if source.random() < 0.8 else pieces)
        piece[source.randrange(len(piece))] = source.randrange(256)
    ends_well(executors, [bytes(piece) for piece in pieces])


@FUZZ
@given(st.randoms(use_true_random=False))
def test_a_recording_cut_short_doubled_or_out_of_order(executors: LocalExecutors, source: random.Random) -> None:
    pieces = good_session()
    action = source.randrange(3)
    if action == 0:
        whole = b"".join(pieces)
        pieces = [whole[: source.randrange(len(whole))]]
    elif action == 1:
        pieces.insert(source.randrange(4), source.choice(pieces))
    else:
        source.shuffle(pieces)
    ends_well(executors, pieces)


def test_the_undamaged_recording_is_answered(executors: LocalExecutors) -> None:
    guest = TestGuest(executors.connect())
    guest.sock.sendall(b"".join(good_session()))
    head_bytes, size = guest.answer(5)
    assert 0 < head_bytes < size
    guest.sock.close()
    assert executors.exit_code() == 0
