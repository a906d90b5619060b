"""Headers with a meaning of ours."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict

from dgsf.errors import InvalidHeader, Unauthenticated
from dgsf.wire.messages import Codec
from gateway.headers import argument_codec, bearer, call_headers, reply_codec, request_id
from gateway.reply import header_value


def test_times_priority_and_key_are_read():
    found = call_headers(
        CIMultiDict(
            {"X-Dgsf-Start-Deadline": "0.25", "x-dgsf-timeout": "3", "X-Dgsf-Priority": "-7", "Idempotency-Key": "k-1"}
        )
    )
    assert (found.start_us, found.timeout_us, found.priority, found.key) == (250_000, 3_000_000, -7, "k-1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Dgsf-Timeout", "0"),
        ("X-Dgsf-Timeout", "-1"),
        ("X-Dgsf-Timeout", "1e3"),
        ("X-Dgsf-Timeout", "nan"),
        ("X-Dgsf-Timeout", "99999"),
        ("X-Dgsf-Start-Deadline", ""),
        ("X-Dgsf-Start-Deadline", "five"),
        ("X-Dgsf-Priority", "11"),
        ("X-Dgsf-Priority", "1.5"),
        ("Idempotency-Key", ""),
        ("Idempotency-Key", "two words"),
        ("Idempotency-Key", "k" * 256),
    ],
)
def test_values_out_of_range_are_refused_by_the_headers_name(name, value):
    with pytest.raises(InvalidHeader, match=name):
        call_headers(CIMultiDict({name: value}))


@pytest.mark.parametrize(
    ("given", "codec"),
    [
        (None, Codec.json),
        ("application/json", Codec.json),
        ("Application/JSON; charset=utf-8", Codec.json),
        ("application/vnd.dgsf.pickle", Codec.pickle),
        ("image/png", Codec.raw),
        ("text/plain", Codec.raw),
    ],
)
def test_the_content_type_tells_how_to_read_a_body(given, codec):
    assert argument_codec(CIMultiDict({"Content-Type": given} if given else {})) is codec


def test_only_who_asks_for_pickle_gets_it():
    assert reply_codec(CIMultiDict({"Accept": "application/vnd.dgsf.pickle"})) is Codec.pickle
    assert reply_codec(CIMultiDict({"Accept": "*/*"})) is Codec.json
    assert reply_codec(CIMultiDict()) is Codec.json


def test_a_key_is_taken_from_a_bearer_header_only():
    assert bearer(CIMultiDict({"Authorization": "bearer  dgsf_a_b"})) == "dgsf_a_b"
    for wrong in ({}, {"Authorization": "Basic abc"}, {"Authorization": "dgsf_a_b"}):
        with pytest.raises(Unauthenticated):
            bearer(CIMultiDict(wrong))


def test_a_request_id_is_echoed_only_if_it_is_printable_and_short():
    assert request_id(CIMultiDict({"X-Request-ID": "abc 1"})) == b"X-Request-ID: abc 1\r\n"
    for wrong in ("é", "a\tb", "x" * 129, ""):
        assert request_id(CIMultiDict({"X-Request-ID": wrong})) == b""


def test_a_header_value_never_ends_its_line():
    assert header_value("gpu\r\nX-Evil: 1 é") == b"gpu??X-Evil: 1 ?"
