"""The relay's cutter: whatever the pieces in which bytes arrive, the same frames come out, whole and in order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgsf.errors import ProtocolError
from dgsf.wire.frames import HEADER, MAX_BODY_BYTES, FrameReader, Kind, encode_frame
from proxy.sessions.cutter import PASSED, Cutter

KINDS = (Kind.COMMAND, Kind.ANSWER, Kind.SESSION, Kind.USAGE, Kind.STATE)
frames = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 3), st.integers(0, 2**32 - 1), st.binary(max_size=60)), max_size=20
)


@given(frames, st.lists(st.integers(1, 90), max_size=60))
def test_frames_come_out_as_they_went_in(given, sizes):
    data = b"".join(encode_frame(kind, stream, body, flags) for kind, flags, stream, body in given)
    cutter, cuts, position = Cutter(), [], 0
    for size in [*sizes, len(data)]:
        cuts += cutter.feed(data[position : position + size]) if position < len(data) else []
        position += size
    assert b"".join(bytes(piece) for cut in cuts for piece in cut.pieces) == data
    assert all(cut.size == sum(len(piece) for piece in cut.pieces) for cut in cuts)
    assert not cutter.unfinished
    whole = [frame for cut in cuts for frame in FrameReader().feed(b"".join(cut.pieces))]
    assert [(frame.kind, frame.flags, frame.stream, frame.body) for frame in whole] == given
    for cut in cuts:
        inside = FrameReader().feed(b"".join(cut.pieces))
        assert len(inside) == 1 or cut.kind in PASSED
        assert (cut.kind, cut.flags, cut.stream) == inside[-1][:3]


@given(st.binary(min_size=1, max_size=11), st.integers(0, 3))
def test_a_part_of_a_frame_stays_inside(head, more):
    frame = encode_frame(Kind.COMMAND, 1, b"x" * more)
    cutter = Cutter()
    assert cutter.feed(frame[: len(head)]) == []
    assert cutter.unfinished
    (cut,) = cutter.feed(frame[len(head) :])
    assert cut.body() == b"x" * more


@pytest.mark.parametrize(
    "head", [HEADER.pack(MAX_BODY_BYTES + 1, 17, 0, 0, 1), HEADER.pack(0, 99, 0, 0, 1), HEADER.pack(0, 17, 0, 7, 1)]
)
@pytest.mark.parametrize("split", [0, 5, 12])
def test_what_is_no_frame_is_refused(head, split):
    with pytest.raises(ProtocolError):
        _feed(Cutter(), head[:split], head[split:] + b"more bytes behind it")


def _feed(cutter, *parts):
    for part in filter(None, parts):
        cutter.feed(part)
