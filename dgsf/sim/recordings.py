"""Recordings of device commands as files: JSON lines, one command each.

A malformed line is an error that names file and line; nothing is skipped or repaired.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from dgsf.core.perfmodel import Command, Recording
from dgsf.errors import TraceError

_decoder = msgspec.json.Decoder(Command)


def save_recording(path: Path | str, recording: Recording) -> None:
    """Writes the whole file anew."""
    lines = [msgspec.json.encode(item) for item in recording.commands]
    Path(path).write_bytes(b"".join(line + b"\n" for line in lines))


def load_recording(path: Path | str) -> Recording:
    """Reads every line, or says which one cannot be read."""
    path = Path(path)
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error
    commands = tuple(_command(path, number, line) for number, line in enumerate(lines, 1) if line.strip())
    if not commands:
        raise TraceError(
            f"{path}: has no device commands; 'dgsf profile FILE::FUNCTION --recording {path}' writes some"
        )
    return Recording(commands)


def _command(path: Path, number: int, line: bytes) -> Command:
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, ValueError) as error:  # also what Command itself refuses
        raise TraceError(f"{path}: line {number}: not a device command: {error}") from error
