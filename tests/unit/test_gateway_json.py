"""What counts as JSON at the edge."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgsf.errors import InvalidJson
from gateway.jsoncheck import parse

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_every_json_text_is_read_as_python_reads_it(value):
    assert parse(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"x": NaN}', "byte 6"),
        (b'{"x": 1', "truncated"),
        (b'{"x": 1} more', "trailing"),
        (b"[" * 100_000, "too deeply"),
        (b'"\xff"', "UTF-8"),
        (b"\xef\xbb\xbf{}", "byte 0"),
        (b"Infinity", "byte 0"),
        (b"[1e999]", "out of range"),
        (b'{"x": 1, "x": 2}', "'x' occurs twice"),
        (b'{"a": {"url": "http://x", "url": 2}}', "'url' occurs twice"),
        (b'[{"a": 1, "\\u0061": 2}]', "'a' occurs twice"),
    ],
)
def test_what_is_no_json_is_told_where(body, told):
    with pytest.raises(InvalidJson, match=told):
        parse(body)


def test_colons_inside_strings_are_no_repeated_names():
    assert parse(b'{"a": "x:y:z", "b": {"c": "::"}}') == {"a": "x:y:z", "b": {"c": "::"}}
