"""What arrives at the guest is cut into frames, however the bytes are chopped; bulk goes to its place."""

from __future__ import annotations

import socket
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgsf.errors import ConnectionLost, ProtocolError
from dgsf.remoting.guest.channel import Channel
from dgsf.remoting.guest.intake import BUFFER_BYTES, Intake, Sink
from dgsf.remoting.protocol import BULK_HEADER
from dgsf.wire.frames import FLAG_BULK, HEADER, Frame, Kind, encode_frame

BODY = st.binary(max_size=40)
PART = st.one_of(
    st.tuples(st.just("frame"), BODY),
    st.tuples(st.just("bulk"), st.binary(min_size=1, max_size=60)),
    st.tuples(st.just("large"), st.integers(BUFFER_BYTES // 3, BUFFER_BYTES * 2)),
)


def feed(intake: Intake, data: bytes, cuts: list[int]) -> None:
    position = turn = 0
    while position < len(data):
        space = intake.space()
        size = min(len(space), cuts[turn % len(cuts)], len(data) - position)
        space[:size] = data[position : position + size]
        intake.filled(size)
        position += size
        turn += 1


@settings(max_examples=100, deadline=None)
@given(st.lists(PART, max_size=8), st.lists(st.integers(1, 300_000), min_size=1, max_size=5))
def test_frames_and_bulk_come_out_whole(parts: list[tuple[str, bytes | int]], cuts: list[int]) -> None:
    got: list[Frame] = []
    intake = Intake(got.append)
    expected: list[bytes] = []
    bulk = b"".join(content for name, content in parts if name == "bulk" and isinstance(content, bytes))
    place, full = bytearray(len(bulk)), []
    intake.sinks[9] = Sink(memoryview(place), lambda: full.append(True))
    data = b""
    for name, content in parts:
        if name == "bulk":
            assert isinstance(content, bytes)
            data += encode_frame(Kind.ANSWER, 1, BULK_HEADER.pack(9) + content, FLAG_BULK)
            continue
        body = content if isinstance(content, bytes) else bytes(content)
        data += encode_frame(Kind.ANSWER, 1, body)
        expected.append(body)
    if len(data) > 100_000:
        cuts = [max(cut, 1000) for cut in cuts]
    feed(intake, data, cuts)
    assert [frame.body for frame in got] == expected
    assert bytes(place) == bulk
    assert bool(full) == bool(bulk)
    assert not (full and intake.sinks)  # who keeps the place of a full one keeps its bytes


def test_bulk_that_nobody_waits_for_is_dropped_and_too_much_is_refused() -> None:
    got: list[Frame] = []
    intake = Intake(got.append)
    feed(
        intake, encode_frame(Kind.ANSWER, 1, BULK_HEADER.pack(5) + b"lost", FLAG_BULK) + encode_frame(18, 2, b"x"), [7]
    )
    assert [frame.body for frame in got] == [b"x"]
    intake.sinks[5] = Sink(memoryview(bytearray(2)), lambda: None)
    with pytest.raises(ProtocolError):
        feed(intake, encode_frame(Kind.ANSWER, 1, BULK_HEADER.pack(5) + b"more", FLAG_BULK), [100])
    with pytest.raises(ProtocolError):
        feed(Intake(got.append), HEADER.pack(1 << 30, 18, 0, 0, 0), [100])


def test_two_full_pipes_do_not_wait_for_each_other() -> None:
    """The other side sends a lot before it reads anything."""
    near, far = socket.socketpair()
    got: list[Frame] = []
    channel = Channel(near, got.append)
    size = 4_000_000
    frame = encode_frame(Kind.ANSWER, 1, bytes(1_000_000))

    def other() -> None:
        for _ in range(4):
            far.sendall(frame)
        left = size
        while left > 0:
            left -= len(far.recv(1 << 20))

    thread = threading.Thread(target=other)
    thread.start()
    channel.bulk(1, [memoryview(bytes(size))])
    channel.settle()
    while len(got) < 4:
        channel.receive(wait=True)
    far.shutdown(socket.SHUT_WR)
    thread.join(30)
    assert not thread.is_alive()
    with pytest.raises(ConnectionLost):
        channel.receive(wait=True)
    channel.close()
    far.close()


@pytest.mark.parametrize("cut", [1, 7, 1000, 300_000])
def test_bulk_without_a_place_is_thrown_away_to_its_end_and_what_is_behind_it_arrives(cut: int) -> None:
    got: list[Frame] = []
    intake, full = Intake(got.append), []
    piece = bytes(300_000 if cut >= 1000 else 30)
    intake.sinks[5] = Sink(None, lambda: full.append(len(got)), 2 * len(piece))
    bulk = encode_frame(Kind.ANSWER, 1, BULK_HEADER.pack(5) + piece, FLAG_BULK)
    feed(intake, bulk + encode_frame(18, 2, b"between") + bulk + encode_frame(18, 3, b"behind"), [cut])
    assert [frame.body for frame in got] == [b"between", b"behind"]
    assert full == [1] and not intake.sinks
