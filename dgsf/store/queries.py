"""The named SQL statements of `sql/queries`, read once when the store is imported.

A statement starts with `-- name: some_name`, then says in comment lines why it is as it is, then
comes the SQL.  Comments are not sent to the server.  A name used twice or without a reason is an
error at import, so that it never reaches a running platform.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files

_NAME = re.compile(r"^-- name: ([a-z][a-z0-9_]*)\s*$")


class QueryFileError(Exception):
    """A query file is not written as it should be."""


def parse(source: str, where: str) -> dict[str, str]:
    """The statements of one file by name."""
    found: dict[str, str] = {}
    for name, lines in _blocks(source.splitlines(), where):
        reasons = [line for line in lines if line.startswith("-- ")]
        text = "\n".join(line for line in lines if not line.startswith("--")).strip()
        if name in found or not reasons or not text:
            raise QueryFileError(f"{where}: {name} must occur once, say why in a comment, and have SQL")
        found[name] = text
    return found


def _blocks(lines: Iterable[str], where: str) -> list[tuple[str, list[str]]]:
    blocks: list[tuple[str, list[str]]] = []
    for line in lines:
        match = _NAME.match(line)
        if match:
            blocks.append((match.group(1), []))
        elif blocks:
            blocks[-1][1].append(line)
        elif line.strip():
            raise QueryFileError(f"{where}: text before the first '-- name:' line")
    return blocks


def load() -> dict[str, str]:
    """Every statement of the package."""
    found: dict[str, str] = {}
    folder = files("dgsf.store").joinpath("sql", "queries")
    for entry in sorted(folder.iterdir(), key=lambda item: item.name):
        if not entry.name.endswith(".sql"):
            continue
        part = parse(entry.read_text("utf-8"), entry.name)
        twice = found.keys() & part.keys()
        if twice:
            raise QueryFileError(f"{entry.name}: {', '.join(sorted(twice))} is defined in another file too")
        found |= part
    return found


_STATEMENTS = load()


def sql(name: str) -> str:
    """The text of one statement; asyncpg prepares and keeps it per connection."""
    return _STATEMENTS[name]
