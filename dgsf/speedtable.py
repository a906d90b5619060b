"""Reads the table of speeds that the settings or an option name; what is wrong is told with the file and the place."""

from __future__ import annotations

from pathlib import Path

from dgsf.core.placement.speeds import Speeds, Table, parse_speeds
from dgsf.errors import ConfigError


def read_speeds(path: Path, said: str) -> Speeds:
    """Speeds by function and device type; `said` is what named the file, such as DGSF_SPEEDS."""
    return Speeds(read_table(path, said))


def read_table(path: Path, said: str) -> Table:
    """The same as the file has it: (function, device type) to speed."""
    try:
        table = parse_speeds(path.expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{said}={path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # also what is no UTF-8
        raise ConfigError(f"{said}={path}: {error}") from error
    if not table:
        raise ConfigError(f"{said}={path}: has no speeds; write function -> device type -> speed as JSON")
    return table
