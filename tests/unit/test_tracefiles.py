"""Trace files are read strictly: errors name file, line and column."""

from __future__ import annotations

import pytest

from dgsf.errors import TraceError, UsageError
from dgsf.sim.tracefiles import number, optional_text, read_rows, text, whole

COLUMNS = {"name": text, "cpu": whole(), "share": number(0, 1), "note": optional_text}
GOOD = "cpu,name,share,note,more\n4,a,0.5,,x\n\n8,b,1,hi,y\n"


def _file(tmp_path, content):
    path = tmp_path / "trace.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_rows_come_as_read_in_any_column_order(tmp_path):
    rows = list(read_rows(_file(tmp_path, GOOD), COLUMNS))
    assert rows == [
        {"name": "a", "cpu": 4, "share": 0.5, "note": ""},
        {"name": "b", "cpu": 8, "share": 1.0, "note": "hi"},
    ]


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("", ["line 1", "header"]),
        ("name,cpu,note\n", ["line 1", "no column 'share'"]),
        (GOOD + "four,c,1,,\n", ["line 5", "column 1 'cpu'", "'four'"]),
        (GOOD + "-4,c,1,,\n", ["line 5", "column 1 'cpu'", "from 0 to"]),
        (GOOD + "4,c,nan,,\n", ["line 5", "column 3 'share'", "'nan'"]),
        (GOOD + "4,c,1.5,,\n", ["line 5", "column 3 'share'", "from 0 to 1"]),
        (GOOD + "4,,1,,\n", ["line 5", "column 2 'name'", "some text"]),
        (GOOD + "4,c,1\n", ["line 5", "3 cells", "header has 5"]),
        (GOOD + '4,"c,1,,\n', ["line 5", "not CSV"]),
        (GOOD.encode() + b"4,\xff,1,,\n", ["UTF-8"]),
    ],
)
def test_a_wrong_cell_is_named(tmp_path, content, parts):
    path = _file(tmp_path, content)
    with pytest.raises(TraceError) as caught:
        list(read_rows(path, COLUMNS))
    for part in [str(path), *parts]:
        assert part in str(caught.value)


def test_a_missing_file_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match=r"nothing\.csv: cannot be read"):
        list(read_rows(tmp_path / "nothing.csv", COLUMNS))
