"""Sessions as rows: what an operator sees of them, and what they are asked to do.

The proxy that has a session writes its row; gateways read it and write only the wish that it moves.  What a
session costs is not in here but in its calls; the figures are for people, but for what is not billed yet: that is
billed from here if the proxy is killed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from dgsf.store.database import Database
from dgsf.store.queries import sql

SESSIONS_CHANNEL = "dgsf_sessions"
PROXY_SILENT_SECONDS = 3.0  # one that has not been heard of for so long is lost, as far as its sessions go


@dataclass(frozen=True, slots=True)
class SessionState:
    """How a session is now, as its proxy writes it."""

    id: UUID
    tenant_id: int
    version_id: int | None
    device_id: int | None
    state: str
    generation: int
    memory_bytes: int
    memory_used: int
    bytes_up: int
    bytes_down: int
    device_us: int
    cost_nano: int
    error_code: str | None
    started_at: float  # Unix seconds
    segment_id: UUID | None = None  # of the bill that is running
    unbilled_us: int = 0
    unbilled_nano: int = 0


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session; `move_error` tells why the last move that was asked for did not happen."""

    id: UUID
    tenant_name: str
    function_name: str | None
    proxy_name: str | None
    device_name: str | None
    state: str
    generation: int
    memory_bytes: int
    memory_used: int
    bytes_up: int
    bytes_down: int
    device_us: int
    cost_nano: int
    error_code: str | None
    move_to: str | None
    move_error: str | None
    started_at: datetime
    updated_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class Unbilled:
    """A segment that its proxy did not live to bill."""

    id: UUID
    tenant_id: int
    device_id: int | None
    device_us: int
    cost_nano: int
    created_at: float  # Unix seconds


@dataclass(frozen=True, slots=True)
class SessionSeat:
    """An open session as whoever moves sessions sees it: where it sits, and what came of its last move."""

    id: UUID
    tenant_id: int
    version_id: int | None
    device_id: int | None
    state: str
    memory_bytes: int
    age_s: float
    asked: bool  # to move, and has not answered yet
    move_error: str | None

    @property
    def attached(self) -> bool:
        return self.state == "attached"

    @property
    def on_the_move(self) -> bool:
        return self.asked or self.state == "moving"


_COLUMNS = SessionState.__slots__


class SessionStore:
    """The table of sessions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, proxy: int, incarnation: int, states: Sequence[SessionState]) -> None:
        """All of these in one statement."""
        columns = [[getattr(state, name) for state in states] for name in _COLUMNS]
        async with self._database.acquire() as connection:
            await connection.execute(sql("write_sessions"), proxy, incarnation, *columns)

    async def close_old(self, proxy: int, incarnation: int) -> None:
        """Sessions of this proxy's earlier lives are over."""
        async with self._database.acquire() as connection:
            await connection.execute(sql("close_old_sessions"), proxy, incarnation)

    async def unbilled_of_old(self, proxy: int, incarnation: int) -> list[Unbilled]:
        """What sessions of this proxy's earlier lives owe; to be asked before they are closed."""
        async with self._database.acquire() as connection:
            found = await connection.fetch(sql("unbilled_of_old_sessions"), proxy, incarnation)
            return [Unbilled(**record) for record in found]

    async def resume(self, lost: UUID, by: UUID, tenant_id: int) -> int | None:
        """The device time that a session lost with its proxy had paid for; None: not so, or resumed already."""
        async with self._database.acquire() as connection:
            found: int | None = await connection.fetchval(
                sql("resume_session"), lost, by, tenant_id, PROXY_SILENT_SECONDS
            )
            return found

    async def was_dummy(self, session: UUID, tenant_id: int) -> bool | None:
        """Whether a session's values were dummies; None: there is no such session, or it never had a device."""
        async with self._database.acquire() as connection:
            found: bool | None = await connection.fetchval(sql("session_was_dummy"), session, tenant_id)
            return found

    async def list_sessions(self, tenant_id: int | None = None, *, ended: bool = False) -> list[SessionInfo]:
        """Open sessions, newest first, of one tenant or of all; with `ended` also earlier ones."""
        async with self._database.acquire() as connection:
            return [SessionInfo(**record) for record in await connection.fetch(sql("list_sessions"), tenant_id, ended)]

    async def get_session(self, session_id: UUID, tenant_id: int | None = None) -> SessionInfo | None:
        """One session, open or ended, of one tenant or of any."""
        async with self._database.acquire() as connection:
            record = await connection.fetchrow(sql("get_session"), session_id, tenant_id)
            return None if record is None else SessionInfo(**record)

    async def seats(self) -> list[SessionSeat]:
        """Open sessions of all proxies that are alive."""
        async with self._database.acquire() as connection:
            found = await connection.fetch(sql("session_seats"), PROXY_SILENT_SECONDS)
            return [SessionSeat(**record) for record in found]

    async def ask_move(self, session_id: UUID, to: str, tenant_id: int | None = None) -> bool:
        """Note the wish; False if there is no such open session."""
        async with self._database.acquire() as connection:
            return await connection.fetchval(sql("ask_move"), session_id, to, tenant_id) is not None

    async def asked_moves(self, proxy: int) -> list[tuple[UUID, str]]:
        async with self._database.acquire() as connection:
            return [(record["id"], record["move_to"]) for record in await connection.fetch(sql("asked_moves"), proxy)]

    async def answer_move(self, session_id: UUID, error: str | None) -> None:
        async with self._database.acquire() as connection:
            await connection.execute(sql("answer_move"), session_id, error)

    async def forget_old(self, limit: int = 1000) -> None:
        async with self._database.acquire() as connection:
            await connection.execute(sql("forget_old_sessions"), limit)
