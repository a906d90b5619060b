"""Reads trace files strictly: a wrong cell is an error that names its file, line and column.

The caller says which columns it needs and how each is read.  Other columns are ignored; a missing column, a short
or long row, or a value that its reader refuses stops the reading.  It never guesses and never skips a row.  Blanks
around names and cells do not count, but for those behind a quoted cell, which are refused.
"""

from __future__ import annotations

import csv
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dgsf.core.devices import HOST
from dgsf.core.placement.model import ANY
from dgsf.errors import TraceError

if TYPE_CHECKING:
    from _csv import Reader as CellReader

Readers = Mapping[str, Callable[[str], Any]]
MOST_MIB = MOST_MILLI = 2**40  # of one node or task; as bytes that is still a number of 63 bits
MOST_S = 1e11  # of a moment or a duration: some three thousand years
_SHOWN = 40  # characters of a wrong cell
_LINE_END = re.compile(r"\r\n|\r|\n")
_WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")
_TYPE = re.compile(r"[A-Za-z][\w.-]*", re.ASCII)
_OTHER_MARKS = {";": "';'", "\t": "tabs"}
_PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}


class Where(NamedTuple):
    """A row's place in its file, for whoever finds a cell wrong."""

    path: Path
    first: int  # the line in which the row begins
    cells: Sequence[str]
    places: Mapping[str, int]  # of the columns that are read

    def line(self, place: int) -> int:
        """In which line a cell begins: those before it may have several."""
        return self.first + sum(len(_LINE_END.findall(cell)) for cell in self.cells[:place])

    def wrong(self, column: str, told: str) -> TraceError:
        place = self.places[column]
        return TraceError(f"{self.path}: line {self.line(place)}, column {place + 1} '{column}': {told}")


NumberedRow = tuple[Where, dict[str, Any]]


def read_rows(path: Path | str, columns: Readers) -> Iterator[dict[str, Any]]:
    """The rows of a CSV file with a header line, each as {column: value read by the column's reader}."""
    for _, row in numbered_rows(path, columns):
        yield row


def numbered_rows(path: Path | str, columns: Readers) -> Iterator[NumberedRow]:
    """The same rows with their places, for callers that compare cells."""
    path = Path(path)
    with _opened(path) as file:
        yield from _rows(path, file, columns)


def header_of(path: Path) -> list[str]:
    """The names of its columns."""
    with _opened(path) as file:
        return _header(path, _reader(file))


def published(path: Path) -> Path:
    """The file of a published trace, which nobody has who did not fetch it."""
    if not path.exists():
        where = "DGSF_TRACES (or --traces of 'dgsf sim')"
        raise TraceError(f"{path}: there is no such trace; set {where} to the folder that has it")
    return path


@contextmanager
def _opened(path: Path) -> Iterator[Iterator[str]]:
    try:
        _refuse_unreadable(path)
        with path.open(newline="", encoding="utf-8-sig") as file:  # some spreadsheets begin with a mark
            yield file
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: {_bad_byte(path)} is not UTF-8 text; save the file as 'CSV UTF-8'") from error


def _refuse_unreadable(path: Path) -> None:
    """What would be read as nothing, or as wrong text: a kind is found by a first look, a mistake by another."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise TraceError(f"{path}: is a pipe or a device, and a trace is read more than once; write it to a file first")
    with path.open("rb") as file:
        begins = file.read(8)
    for mark, name in _PACKED.items():
        if begins.startswith(mark):
            raise TraceError(f"{path}: is compressed ({name}), not CSV; unpack it first")


def _bad_byte(path: Path) -> str:
    """Line, column and value of the first byte that is not UTF-8."""
    for line, content in enumerate(path.read_bytes().splitlines(), 1):
        try:
            content.decode()
        except UnicodeDecodeError as error:
            column = len(next(_reader([content[: error.start].decode() or ","], strict=False)))
            return f"line {line}, column {column if error.start else 1}: byte 0x{content[error.start]:02x}"
    return "a byte"  # the file has changed since


def shown(cell: str) -> str:
    """A cell as messages show it: not all of it, where it is long."""
    return repr(cell) if len(cell) <= _SHOWN else f"{cell[:_SHOWN]!r}..."


def distinct(rows: Iterable[NumberedRow], column: str) -> Iterator[dict[str, Any]]:
    """The rows; no two may have the same in this column."""
    lines: dict[str, int] = {}
    for where, row in rows:
        line = where.line(where.places[column])
        before = lines.setdefault(row[column], line)
        if before != line:
            raise where.wrong(column, f"{shown(row[column])} is in line {before} already; each must have its own")
        yield row


def in_order(rows: Iterable[NumberedRow], column: str) -> Iterator[dict[str, Any]]:
    """The rows; what is in this column must not go back."""
    latest = None
    for where, row in rows:
        if latest is not None and row[column] < latest:
            raise where.wrong(column, "is earlier than in the row before; the trace must be in order")
        latest = row[column]
        yield row


def _rows(path: Path, lines: Iterator[str], columns: Readers) -> Iterator[NumberedRow]:
    cells = _reader(lines)
    header = _header(path, cells)
    places = _places(path, header, list(columns))
    read, first = 0, cells.line_num + 1
    try:
        for row in cells:
            if row:
                read += 1
                where = Where(path, first, row, places)
                yield where, _read(where, header, columns)
            first = cells.line_num + 1
    except csv.Error as error:
        raise _not_csv(path, first, error) from error
    if not read:
        raise TraceError(f"{path}: line 2, column 1: expected a row below the header, found nothing")


def _reader(lines: Iterable[str], *, strict: bool = True) -> CellReader:
    """Cells as the file has them, but that a quote may begin behind spaces."""
    return csv.reader(lines, strict=strict, skipinitialspace=True)


def _header(path: Path, cells: Iterator[list[str]]) -> list[str]:
    try:
        header = next(cells, None)
    except csv.Error as error:
        raise _not_csv(path, 1, error) from error
    if not header:
        raise TraceError(f"{path}: line 1, column 1: expected a header line, found nothing")
    header = [name.strip() for name in header]
    _refuse_other_marks(path, header)
    for place, name in enumerate(header):
        if "\0" in name:
            raise TraceError(f"{path}: line 1, column {place + 1}: {shown(name)} has a NUL character")
        if name and name in header[:place]:
            first = header.index(name) + 1
            raise TraceError(f"{path}: line 1, column {place + 1}: {shown(name)} is the name of column {first} already")
    return header


def _refuse_other_marks(path: Path, header: Sequence[str]) -> None:
    """What some spreadsheets call CSV."""
    for mark, word in _OTHER_MARKS.items() if len(header) == 1 else ():
        if mark in header[0]:
            raise TraceError(f"{path}: line 1: the columns are separated by {word}; save the file with commas")


def _not_csv(path: Path, first: int, error: csv.Error) -> TraceError:
    """Names the cell at which the row that begins in this line is no CSV any more, by where the cell begins."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        content = "".join(islice(file, first - 1, None))
    good = bisect_left(range(len(content)), True, key=lambda place: _is_wrong(content[: place + 1]))
    cells = next(_reader(StringIO(content[:good], newline=""), strict=False), [""])
    line = first + sum(len(_LINE_END.findall(cell)) for cell in cells[:-1])
    told = "the quote is not closed" if good == len(content) else str(error)
    return TraceError(f"{path}: line {line}, column {len(cells)}: not CSV: {told}")


def _is_wrong(content: str) -> bool:
    """Whether its first row is no CSV; one that only lacks the end of a quote is not wrong yet."""
    for ended in (content, content + '"'):
        try:
            next(_reader(StringIO(ended, newline="")), None)
            return False
        except csv.Error:
            continue
    return True


def named(header: Sequence[str]) -> str:
    """The names of a header, as messages list them."""
    return ", ".join(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}..." for name in header)


def _places(path: Path, header: Sequence[str], wanted: Sequence[str]) -> dict[str, int]:
    missing = ", ".join(f"'{name}'" for name in wanted if name not in header)
    if missing:
        has = f"wanted are {', '.join(wanted)}; the header has: {named(header)}"
        raise TraceError(f"{path}: line 1: no column {missing}; {has}")
    return {name: header.index(name) for name in wanted}


def _read(where: Where, header: Sequence[str], columns: Readers) -> dict[str, Any]:
    path, line, row, places = where
    if len(row) != len(header):
        at = min(len(row), len(header)) + 1
        told = f"column {at} '{header[at - 1]}' is missing" if len(row) < len(header) else f"column {at} has no name"
        raise TraceError(f"{path}: line {line}: {len(row)} cells where the header has {len(header)}; {told}")
    values = {}
    for name, place in places.items():
        try:
            values[name] = columns[name](_clean(row[place]))
        except ValueError as error:
            raise where.wrong(name, f"{shown(row[place])} {error}") from error
    return values


def _clean(cell: str) -> str:
    if "\0" in cell:
        raise ValueError("has a NUL character")
    return cell.strip()


# --- readers: what they refuse, they say of the cell, as in "'abc' is not a whole number" ----------
def whole(low: int = 0, high: int = 2**53) -> Callable[[str], int]:
    """A reader of whole numbers within limits."""

    def read(text: str) -> int:
        try:
            value = int(text) if _WHOLE.fullmatch(text) else None
        except ValueError:  # it has thousands of digits
            value = None
        if value is None:
            raise ValueError("is not a whole number")
        if not low <= value <= high:
            raise ValueError(f"is not a whole number from {low} to {high}")
        return value

    return read


def number(low: float = 0.0, high: float = 1e18) -> Callable[[str], float]:
    """A reader of decimal numbers within limits; 'nan' and 'inf' are refused."""

    def read(text: str) -> float:
        try:
            value = float(text) if text.isascii() and "_" not in text else None  # Python takes 1_0 for 10
        except ValueError:
            value = None
        if value is None:
            raise ValueError("is not a number")
        if not low <= value <= high:
            raise ValueError(f"is not a number from {low:g} to {high:g}")
        return value

    return read


def seconds(low: float = 0.0) -> Callable[[str], float]:
    """A reader of times and durations; what is larger is milliseconds, or no longer told apart by a number."""
    return number(low, MOST_S)


def moment(value: str) -> float:
    """A reader of an ISO date and time, as seconds; without a time zone it is taken for UTC."""
    try:
        found = datetime.fromisoformat(value.strip())
    except ValueError:
        raise ValueError("is not a date and time such as 2024-01-31 13:45:00") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def text(value: str) -> str:
    """A reader that takes the cell as it is, but not empty."""
    if not value.strip():
        raise ValueError("is empty; expected some text")
    return value


def device_type(value: str) -> str:
    """A reader of the name of one device type, or nothing."""
    if value and not is_device_type(value):
        raise ValueError("is no device type; write a name such as T4, without spaces")
    return value


def device_types(value: str) -> str:
    """A reader of device types that will do alike, such as 'T4|A100', or nothing."""
    if value and not all(is_device_type(name) or name.lower() == ANY for name in value.split("|")):
        raise ValueError("is no device type, nor several as in 'T4|A100', without spaces")
    return value


def is_device_type(name: str) -> bool:
    """Whether it can name a type: two words mean something else to placement."""
    return _TYPE.fullmatch(name) is not None and name.lower() not in (HOST, ANY)


def optional_text(value: str) -> str:
    """A reader that takes the cell as it is."""
    return value
