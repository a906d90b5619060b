"""Frames come out as they went in, however the stream is cut; anything else closes the connection."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgsf.errors import ProtocolError
from dgsf.wire.frames import HEADER, HEADER_BYTES, Frame, FrameReader, Kind, encode_frame
from dgsf.wire.messages import Carrier, ControlRequest, Ref, Run, encode, join, reader, split

frames = st.lists(
    st.builds(
        Frame,
        st.sampled_from([int(kind) for kind in Kind]),
        st.integers(0, 255),
        st.integers(0, 2**32 - 1),
        st.binary(max_size=200),
    ),
    max_size=10,
)


def encoded(many):
    return b"".join(encode_frame(frame.kind, frame.stream, frame.body, frame.flags) for frame in many)


@given(frames, st.data())
def test_frames_survive_any_cutting(many, data):
    stream, reading, found = encoded(many), FrameReader(), []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        found += reading.feed(stream[:cut])
        stream = stream[cut:]
    assert found == many
    assert not reading.unfinished


def test_a_stream_cut_at_every_offset_gives_only_whole_frames():
    many = [Frame(Kind.OPEN, 0, 7, b"hello"), Frame(Kind.END, 1, 8, b""), Frame(Kind.ITEM, 0, 9, b"x" * 40)]
    stream = encoded(many)
    for cut in range(len(stream) + 1):
        reading = FrameReader()
        found = reading.feed(stream[:cut])
        assert found == many[: len(found)]
        assert reading.unfinished == (cut not in {0, HEADER_BYTES + 5, 2 * HEADER_BYTES + 5, len(stream)})


def test_an_oversized_frame_is_refused_by_its_header_alone():
    with pytest.raises(ProtocolError, match="over the limit of 100"):
        FrameReader(limit=100).feed(HEADER.pack(101, Kind.OPEN, 0, 0, 1))


@given(st.binary(min_size=HEADER_BYTES, max_size=300))
def test_garbage_is_refused_or_waits_but_never_crashes(garbage):
    reading = FrameReader()
    try:
        reading.feed(garbage)
    except ProtocolError:
        return


@given(st.binary(max_size=100))
def test_a_body_that_is_no_message_is_a_protocol_error_or_a_message(body):
    for read in (reader(Run), reader(ControlRequest)):
        try:
            split(body, read)
            read(body)
        except ProtocolError:
            continue


@given(st.binary(min_size=16, max_size=16), st.integers(1, 9), st.integers(0, 2**60), st.binary(max_size=300))
def test_heads_and_payloads_come_out_as_they_went_in(call, attempt, epoch, payload):
    head = Run(call, attempt, epoch, 1, Ref(2, Carrier.inline, len(payload)))
    assert split(join(head, payload), reader(Run)) == (head, payload)


@given(st.binary(min_size=1, max_size=60))
def test_a_message_with_bytes_missing_or_added_is_refused(extra):
    whole = encode(Run(b"x" * 16, 1, 1, 1, Ref()))
    with pytest.raises(ProtocolError):
        reader(Run)(whole + extra)
    with pytest.raises(ProtocolError):
        reader(Run)(whole[:-1])
