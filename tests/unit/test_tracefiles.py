"""Trace files are read strictly: errors name file, line and column."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os

import pytest

from dgsf.errors import TraceError, UsageError
from dgsf.sim.tracefiles import header_of, moment, number, optional_text, read_rows, text, whole

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


def test_spaces_around_names_and_cells_do_not_count(tmp_path):
    spaced = 'cpu , name, share,note\n4 , "a, b",0.5 , hi\n'
    assert list(read_rows(_file(tmp_path, spaced), COLUMNS)) == [{"name": "a, b", "cpu": 4, "share": 0.5, "note": "hi"}]
    assert header_of(_file(tmp_path, spaced)) == ["cpu", "name", "share", "note"]


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("cpu, name ,share,note\n4, a,0.5,\n4, ,0.5,\n", ["line 3, column 2 'name': '' is empty"]),
        ('cpu, name,share,note\n4, "a\n\nb", no,\n', ["line 4, column 3 'share': 'no' is not a number"]),
        ('cpu, name,share,note\n4, "a, b", "c\n', ["line 2, column 3: not CSV: the quote is not closed"]),
        (b'cpu, name,share,note\n4, "a, b", \xff,\n', ["line 2, column 3: byte 0xff is not UTF-8 text"]),
        ("cpu, name,share,note, cpu\n", ["line 1, column 5: 'cpu' is the name of column 1 already"]),
        ("cpu;name;share;note\n4;a;1;\n", ["line 1: the columns are separated by ';'; save the file with commas"]),
        ("cpu\tname\n4\ta\n", ["line 1: the columns are separated by tabs"]),
        ("", ["line 1, column 1", "header"]),
        (GOOD[: GOOD.index("\n") + 1], ["line 2, column 1: expected a row below the header, found nothing"]),
        ("name,cpu,note\n", ["line 1", "no column 'share'", "wanted are name, cpu, share, note"]),
        ("note\n", ["line 1", "no column 'name', 'cpu', 'share'", "the header has: note"]),
        (GOOD + "four,c,1,,\n", ["line 5", "column 1 'cpu'", "'four' is not a whole number"]),
        (GOOD + "4,c,half,,\n", ["line 5", "column 3 'share'", "'half' is not a number"]),
        (GOOD + "-4,c,1,,\n", ["line 5", "column 1 'cpu'", "from 0 to"]),
        (GOOD + "4,c,nan,,\n", ["line 5", "column 3 'share'", "'nan'"]),
        (GOOD + "4,c,1.5,,\n", ["line 5", "column 3 'share'", "from 0 to 1"]),
        (GOOD + "4,,1,,\n", ["line 5", "column 2 'name'", "some text"]),
        (GOOD + "4,c,1\n", ["line 5", "3 cells", "header has 5"]),
        (GOOD + "4,c,1,,,\n", ["line 5", "6 cells", "header has 5; column 6 has no name"]),
        (GOOD + '4,"c,1,,\n5,d,1,,\n', ["line 5, column 2: not CSV: the quote is not closed"]),
        (GOOD + '\n"4\r\n",c,"1,,\n', ["line 7, column 3: not CSV: the quote is not closed"]),
        (GOOD + '4,"c""', ["line 5, column 2: not CSV: the quote is not closed"]),
        (GOOD + '4,"c"d,1,,\n', ["line 5, column 2: not CSV: ',' expected after"]),
        (GOOD + '4,"' + "c\n" * 70_000, ["line 5, column 2: not CSV: field larger than"]),
        ('cpu,"name\n', ["line 1, column 2: not CSV: the quote is not closed"]),
        (b"cpu,name,share,note\r4,a,1,\r4,\xff,1,\r", ["line 3, column 2: byte 0xff is not UTF-8 text"]),
        (GOOD.encode() + b"4,\xff,1,,\n", ["line 5, column 2: byte 0xff is not UTF-8 text"]),
        (GOOD.encode() + b"4,a\xff,1,,\n", ["line 5, column 2: byte 0xff is not UTF-8 text"]),
        (b"\xff", ["line 1, column 1: byte 0xff is not UTF-8 text"]),
        (GOOD + "1_0,c,1,,\n", ["line 5", "column 1 'cpu'", "'1_0' is not a whole number"]),
        (GOOD + "\u0661,c,1,,\n", ["line 5", "column 1 'cpu'", "is not a whole number"]),
        (GOOD + "1,c,\u0661,,\n", ["line 5", "column 3 'share'", "is not a number"]),
        (GOOD + '4,c,1,"\n\r\n","x\ny"\n4,c,no,"\n\n",\n', ["line 9, column 3 'share': 'no' is not a number"]),
        (GOOD + '"4\n",c,no,,\n', ["line 6, column 3 'share': 'no' is not a number"]),
        (GOOD + '"4\n",c\n', ["line 5: 2 cells where the header has 5"]),
        (GOOD + "1,c,0_1,,\n", ["line 5", "column 3 'share'", "'0_1' is not a number"]),
        (GOOD + "9" * 5000 + ",c,1,,\n", ["line 5", "column 1 'cpu'", "'" + "9" * 40 + "'... is not a whole number"]),
        (GOOD + "4,c\0d,1,,\n", ["line 5", "column 2 'name'", "'c\\x00d' has a NUL character"]),
        ("na\0me,cpu\n", ["line 1, column 1", "has a NUL character"]),
        ("name,cpu,share,note,cpu\n", ["line 1, column 5: 'cpu' is the name of column 2 already"]),
        ("x" * 500 + "\n", ["the header has: " + "x" * 40 + "..."]),
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


@pytest.mark.parametrize(("pack", "name"), [(gzip.compress, "gzip"), (bz2.compress, "bzip2"), (lzma.compress, "xz")])
def test_a_compressed_file_is_named_as_such(tmp_path, pack, name):
    with pytest.raises(TraceError, match=rf"trace\.csv: is compressed \({name}\), not CSV; unpack it first"):
        header_of(_file(tmp_path, pack(GOOD.encode())))


def test_a_pipe_is_refused_before_it_is_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(TraceError, match=r"pipe\.csv: is a pipe or a device, .*; write it to a file first"):
        header_of(tmp_path / "pipe.csv")


def test_the_mark_that_spreadsheets_begin_with_is_skipped(tmp_path):
    file = _file(tmp_path, b"\xef\xbb\xbfname,cpu,share,note\na,4,1,\n")
    assert list(read_rows(file, COLUMNS)) == [{"name": "a", "cpu": 4, "share": 1.0, "note": ""}]
    assert header_of(file)[0] == "name"


def test_moments_keep_their_zone_and_may_have_many_digits():
    assert moment("1970-01-01T01:00:00.1234567+01:00") == pytest.approx(0.123456)
    assert moment("1970-01-01 00:00:05.9799600") == pytest.approx(5.97996)
    with pytest.raises(ValueError, match="is not a date and time such as"):
        moment("yesterday")
