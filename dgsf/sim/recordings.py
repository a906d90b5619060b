"""Recordings of device commands as files: JSON lines, one command each; a first line may hold the link they had.

A malformed line is an error that names file and line; nothing is skipped or repaired, and no field that means nothing
is passed over: it may be one that was meant and misspelt.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import msgspec

from dgsf.core.perfmodel import Command, Link, Recording
from dgsf.errors import TraceError


@dataclass(frozen=True, slots=True)
class _Head:
    """What the first line may say of all others."""

    link: Link | None = None


_MOST = 1e15  # µs (thirty years) or bytes of one command: the sum of all of them stays a number
_COMMAND_FIELDS = tuple(field.name for field in fields(Command))
_LINK_FIELDS = tuple(field.name for field in fields(Link))
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_decoder = msgspec.json.Decoder(Command)
_head_decoder = msgspec.json.Decoder(_Head)


def save_recording(path: Path | str, recording: Recording) -> None:
    """Writes the whole file anew."""
    lines = [msgspec.json.encode(item) for item in recording.commands]
    if recording.link is not None:
        known = {name: value for name, value in asdict(recording.link).items() if math.isfinite(value)}
        lines.insert(0, msgspec.json.encode({"link": known}))
    Path(path).write_bytes(b"".join(line + b"\n" for line in lines))


def load_recording(path: Path | str) -> Recording:
    """Reads every line, or says which one cannot be read."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error
    lines = [(number, line) for number, line in enumerate(content.splitlines(), 1) if line.strip()]
    link = _link(path, *lines[0]) if lines else None
    commands = tuple(_command(path, number, line) for number, line in (lines if link is None else lines[1:]))
    if not commands:
        raise TraceError(
            f"{path}: has no device commands; 'dgsf profile FILE::FUNCTION --recording {path}' writes some"
        )
    return Recording(commands, link)


def _link(path: Path, number: int, line: bytes) -> Link | None:
    if b'"link"' not in line:
        return None
    try:
        head = _known_only(line, ("link",))
        _known_only(head["link"], _LINK_FIELDS)
        link = _head_decoder.decode(line).link
        _refuse_endless(link, "round_trip_us", "command_us", "sync_us", "serve_us", "hold_us", "outstanding_reads")
        return link
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # also what Link itself refuses
        raise TraceError(f"{path}: line {number}: not a link: {error}") from error


def _command(path: Path, number: int, line: bytes) -> Command:
    try:
        _known_only(line, _COMMAND_FIELDS)
        command = _decoder.decode(line)
        _refuse_endless(command, "kernel_us", "up_bytes", "down_bytes", "guest_us")
        return command
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # also what Command itself refuses
        raise TraceError(f"{path}: line {number}: not a device command: {error}") from error


def _known_only(line: bytes | msgspec.Raw, known: tuple[str, ...]) -> dict[str, msgspec.Raw]:
    """The fields of this object; ValueError names one that nobody knows."""
    found = _fields_decoder.decode(line)
    unknown = next((name for name in found if name not in known), None)
    if unknown is not None:
        close = difflib.get_close_matches(unknown, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
        raise ValueError(f"unknown field {unknown[:40]!r}; {hint}")
    return found


def _refuse_endless(record: object, *names: str) -> None:
    for name in names:
        if getattr(record, name, 0) > _MOST:
            raise ValueError(f"{name} is {getattr(record, name):g}; it can be at most {_MOST:g}")
