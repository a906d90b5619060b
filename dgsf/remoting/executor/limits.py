"""What one session may use of its device and of the process that serves it."""

from __future__ import annotations

from dataclasses import dataclass

from dgsf.config import GIB, MIB
from dgsf.errors import SessionRefused


@dataclass(frozen=True, slots=True)
class Limits:
    """Hard limits of one session."""

    memory_bytes: int = 4 * GIB  # leased
    handles: int = 1_000_000
    kinds: int = 100_000
    traces: int = 1_000
    trace_entries: int = 1_000_000  # of all traces together
    queued_bytes: int = 256 * MIB  # commands that wait for content or bulk bytes
    transfers: int = 4_096  # open at once

    @property
    def head_bytes(self) -> int:
        """Of a state that comes in: sizes, strides and storage of a tensor for every handle, and the little else."""
        return MIB + 256 * self.handles


def refuse_over(count: int, limit: int, what: str) -> None:
    """Close a session that wants too much of something."""
    if count > limit:
        raise SessionRefused(f"{count} {what} are over the session's limit of {limit}")
