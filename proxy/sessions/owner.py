"""Whose a session is, and what the rest of a proxy may know of it.

A `SessionOwner` says who pays, which devices will do and how much memory is wanted.  `SessionPort` and
`OpenSession` are all that the lanes of fabric functions need to know of sessions; `proxy.sessions.hub` and
`proxy.sessions.session` are the real ones.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import UUID

from dgsf.errors import DgsfError


@dataclass(frozen=True, slots=True)
class SessionOwner:
    """Who has a session and what it needs; without a version it is an attached program, billed by itself."""

    tenant_id: int
    version_id: int | None  # the function whose calls pay for it; None: the session pays as "(attached)"
    gpu: tuple[str, ...]  # acceptable types in order of preference, as in a function's options
    memory_bytes: int  # on the device
    session_id: UUID | None = None  # None: a new one
    start_seconds: float = 30.0  # how long a `Begin` may wait for a device
    function: str = ""  # the name of that function
    resumes: UUID | None = None  # lost with its proxy: what this one repeats of it was paid for


class Used(NamedTuple):
    """What a session used since it was last asked, and where."""

    device_us: int
    cost_nano: int
    device_name: str  # of the device that it uses or used last; empty if it never had one
    device_id: int | None = None


class OpenSession(Protocol):
    """One session, as its owner sees it."""

    @property
    def id(self) -> UUID: ...

    @property
    def ended(self) -> bool: ...

    @property
    def failure(self) -> DgsfError | None:
        """Why it ended, if the platform ended it; None while it lives and if its guest wished so."""
        ...

    @property
    def waiting(self) -> bool:
        """Whether it has asked for a device and not got one yet; such time is not the function's own."""
        ...

    @property
    def device_us(self) -> int:
        """All device time so far that is to be paid for."""
        ...

    @property
    def cost_nano(self) -> int:
        """What that costs, by the prices of the devices that did it."""
        ...

    @property
    def device_name(self) -> str: ...

    def take_usage(self) -> Used:
        """What was used since the last time; whoever takes it bills it."""
        ...

    def starts_within(self, seconds: float | None) -> None:
        """A call begins whose start deadline leaves so much for the wait for a device; None: as its owner says."""
        ...

    async def close(self, error: DgsfError | None = None) -> None:
        """End it: the guest is told why, the executor is killed, its slot is free when this returns."""
        ...


class SessionPort(Protocol):
    """Where connections become sessions."""

    async def adopt(self, sock: socket.socket, owner: SessionOwner) -> OpenSession:
        """A session over a raw, non-blocking, authenticated socket whose other end is a guest."""
        ...
