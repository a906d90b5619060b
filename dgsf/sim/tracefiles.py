"""Reads trace files strictly: a wrong cell is an error that names its file, line and column.

The caller says which columns it needs and how each is read.  Other columns are ignored; a missing column, a short
or long row, or a value that its reader refuses stops the reading.  It never guesses and never skips a row.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dgsf.errors import TraceError

Readers = Mapping[str, Callable[[str], Any]]


def read_rows(path: Path | str, columns: Readers) -> Iterator[dict[str, Any]]:
    """The rows of a CSV file with a header line, each as {column: value read by the column's reader}."""
    path = Path(path)
    try:
        with path.open(newline="", encoding="utf-8") as file:
            yield from _rows(path, file, columns)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: is not UTF-8 text (byte {error.start})") from error


def _rows(path: Path, lines: Iterator[str], columns: Readers) -> Iterator[dict[str, Any]]:
    cells = csv.reader(lines, strict=True)
    try:
        header = next(cells, None)
        if not header:
            raise TraceError(f"{path}: line 1: expected a header line, found nothing")
        places = {name: _position(path, header, name) for name in columns}
        for row in cells:
            if row:
                yield _read(path, cells.line_num, header, row, places, columns)
    except csv.Error as error:
        raise TraceError(f"{path}: line {cells.line_num}: not CSV: {error}") from error


def _position(path: Path, header: Sequence[str], name: str) -> int:
    if name not in header:
        raise TraceError(f"{path}: line 1: no column '{name}'; the header has: {', '.join(header)}")
    return header.index(name)


def _read(
    path: Path, line: int, header: Sequence[str], row: Sequence[str], places: Mapping[str, int], columns: Readers
) -> dict[str, Any]:
    if len(row) != len(header):
        raise TraceError(f"{path}: line {line}: {len(row)} cells where the header has {len(header)}")
    values = {}
    for name, place in places.items():
        try:
            values[name] = columns[name](row[place])
        except (ValueError, KeyError, ArithmeticError) as error:
            raise TraceError(f"{path}: line {line}, column {place + 1} '{name}': {row[place]!r}: {error}") from error
    return values


def whole(low: int = 0, high: int = 2**53) -> Callable[[str], int]:
    """A reader of whole numbers within limits."""

    def read(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(f"expected a whole number from {low} to {high}")
        return value

    return read


def number(low: float = 0.0, high: float = 1e18) -> Callable[[str], float]:
    """A reader of decimal numbers within limits; 'nan' and 'inf' are refused."""

    def read(text: str) -> float:
        value = float(text)
        if not low <= value <= high:
            raise ValueError(f"expected a number from {low:g} to {high:g}")
        return value

    return read


def text(value: str) -> str:
    """A reader that takes the cell as it is, but not empty."""
    if not value:
        raise ValueError("expected some text")
    return value


def optional_text(value: str) -> str:
    """A reader that takes the cell as it is."""
    return value
