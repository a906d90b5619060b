"""Kept answers of keyed calls: the same result after the store as before it."""

from __future__ import annotations

import pytest

from dgsf.errors import FunctionError, ProtocolError
from dgsf.wire import stored
from dgsf.wire.messages import Codec, Failure
from dgsf.wire.ports import CallResult, Payload
from gateway.invoke import render


def test_a_result_comes_back_as_it_was():
    result = CallResult("succeeded", Payload.of(Codec.json, b'{"x":1}'), None, 1, 2, 3, "cpu-0")
    assert stored.decode(stored.encode(result)) == result


def test_a_failure_comes_back_with_its_details():
    details = {"error": {"type": "ValueError", "frames": [{"line": 1}]}}
    result = CallResult("failed", None, Failure(FunctionError.code, "no", details), 1, 2, 3, "cpu-0")
    assert stored.decode(stored.encode(result)) == result


def test_first_and_later_answers_are_rendered_to_the_same_bytes():
    from uuid import UUID

    for result in (
        CallResult("succeeded", Payload.of(Codec.raw, b"\x00\x01"), None, 1, 2, 3, "cpu-0"),
        CallResult("failed", None, Failure(FunctionError.code, "no", {"error": {"type": "E", "a": (1, 2)}})),
    ):
        first = render(UUID(int=7), result, Codec.json, harmless=True)
        again = render(UUID(int=7), stored.decode(stored.encode(result)), Codec.json, harmless=True)
        assert (first.status, first.content, first.data, first.extra) == (
            again.status,
            again.content,
            again.data,
            again.extra,
        )


def test_a_large_answer_is_not_kept_but_told_of():
    large = CallResult("succeeded", Payload.of(Codec.raw, b"x" * (stored.MAX_KEPT_BYTES + 1)), None, 1, 2, 3, "cpu-0")
    kept = stored.encode(large)
    found = stored.decode(kept)
    assert len(kept) < 1000
    assert found.failure is not None and found.failure.code == "conflict"
    assert (found.device_us, found.cost_nano) == (2, 3)


@pytest.mark.parametrize("kept", [b"", b"\xff", b"\x93\x01\x02\x03"])
def test_bytes_that_are_no_kept_answer_are_refused(kept):
    with pytest.raises(ProtocolError):
        stored.decode(kept)
