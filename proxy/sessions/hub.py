"""All sessions of one proxy: where connections become sessions, and what looks after them.

One slow tick finds guests that stopped reading or vanished; one slower one writes how the sessions are, bills long
ones, and sees to devices that drain or are gone and to moves that were asked for.  One session's trouble never
reaches another.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

from dgsf.clock import Clock
from dgsf.core import session as core
from dgsf.errors import Conflict, DgsfError, PlatformError, QueueFull, SessionRefused, ShuttingDown, StoreUnavailable
from dgsf.ids import CallIds
from dgsf.store.calls import CallStore
from dgsf.store.database import Database
from dgsf.store.devices import DeviceStore
from dgsf.store.rows import LeaseGrant, ProxyRow
from dgsf.store.sessions import SessionState, SessionStore
from proxy.directory import Directory
from proxy.leases import LeaseKeeper
from proxy.seating import Seating
from proxy.sessions.billing import Biller
from proxy.sessions.device_link import DeviceLink
from proxy.sessions.guest_link import GIVE_UP_US, STALL_US
from proxy.sessions.moving import Mover
from proxy.sessions.opening import MakeRoom, Opener
from proxy.sessions.owner import SessionOwner
from proxy.sessions.session import Session, Surroundings

log = logging.getLogger(__name__)
TICK_SECONDS = 0.05
LOOK_SECONDS = 1.0
STOP_SECONDS = 10.0
MAX_SESSIONS = 2000
STOPPING = "the platform is stopping; the session's state is gone: attach again when it is back"


class SessionHub:
    """The sessions of one proxy."""

    def __init__(
        self,
        database: Database,
        directory: Directory,
        leases: LeaseKeeper,
        seating: Seating,
        row: ProxyRow,
        clock: Clock,
        make_room: MakeRoom,
    ) -> None:
        self.sessions: dict[UUID, Session] = {}
        self._store = SessionStore(database)
        self._devices = DeviceStore(database)
        self._biller = Biller(CallStore(database), row.number, clock)
        self._opener = Opener(seating, clock, make_room)
        self._row = row
        self._clock = clock
        self._ids = CallIds()
        self._around = Surroundings(self._opener, directory, clock, self._later, self._changed, self._repeated)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loops: list[asyncio.Task[None]] = []
        self._written: dict[UUID, SessionState] = {}
        self._asked: set[UUID] = set()  # moves that are being done as asked
        self._wake = asyncio.Event()
        self._arrived = asyncio.Event()  # a session, for the quick tick to look after
        self._stopping = False
        leases.watch(self._lease_lost)

    # --- life
    def start(self) -> None:
        self._later(self._close_old())

    async def stop(self) -> None:
        """End every session, give the devices back, write the last bills."""
        self._stopping = True
        closing = [session.close(ShuttingDown(STOPPING)) for session in self._open()]
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await asyncio.gather(*closing)
        except TimeoutError:
            log.error("sessions_not_closed", extra={"sessions": len(self.sessions)})
        for task in (*self._loops, *self._tasks):
            task.cancel()
        await asyncio.gather(*self._loops, *self._tasks, return_exceptions=True)
        await self._biller.write_all(STOP_SECONDS)
        try:
            await self._write_down()
        except StoreUnavailable:
            log.warning("sessions_not_written", extra={"sessions": len(self.sessions)})

    # --- SessionPort
    async def adopt(self, sock: socket.socket, owner: SessionOwner) -> Session:
        """A session over a raw, non-blocking, authenticated socket whose other end is a guest."""
        session_id = owner.session_id or self._ids.mint(self._row.number)
        if self._stopping:
            raise ShuttingDown
        if len(self.sessions) >= MAX_SESSIONS:
            raise QueueFull(f"this proxy has {MAX_SESSIONS} sessions already", retry_after=5)
        if session_id in self.sessions:
            raise SessionRefused("this session is open already; ask for a new ticket")
        if not self._loops:  # most proxies never see a session
            self._loops = [asyncio.create_task(self._tick_forever()), asyncio.create_task(self._look_forever())]
        session = self.sessions[session_id] = Session(session_id, owner, self._around)
        self._arrived.set()
        try:
            await asyncio.get_running_loop().create_connection(lambda: session.guest, sock=sock)
        except OSError:
            session.handle(core.Leave())
        return session

    async def move(self, session_id: UUID, to: str = "") -> str:
        """Move a session to another device, to the named one if there is a name; the device's name."""
        session = self.sessions.get(session_id)
        if session is None:
            raise Conflict("the session has ended")
        return await Mover(session, self._opener).move(to)

    def device_links(self) -> list[DeviceLink]:
        """Of sessions that have a device and keep it: one that gives its state away must hear nothing else."""
        return [each.device for each in self._open() if each.mover is None and each.device is not None]

    def wake(self) -> None:
        """Somebody asked for something by the database: look now."""
        self._wake.set()

    # --- events of all
    def _lease_lost(self, grant: LeaseGrant) -> None:
        for session in self._open():
            if session.device is not None and session.device.post.lease == grant:
                session.lease_lost()

    def _changed(self, session: Session) -> None:
        if session.over.is_set():
            self._biller.cut(session)
        self._wake.set()

    def _open(self) -> list[Session]:
        return [session for session in self.sessions.values() if not session.over.is_set()]

    # --- the quick tick
    async def _tick_forever(self) -> None:
        while True:
            if not self.sessions:
                self._arrived.clear()
                await self._arrived.wait()
            await asyncio.sleep(TICK_SECONDS)
            now = self._clock.now_us()
            for session in self._open():
                try:
                    self._tick(session, now)
                except Exception:  # one session's trouble is not the others'
                    log.exception("session_tick_failed", extra={"session": str(session.id)})

    @staticmethod
    def _tick(session: Session, now_us: int) -> None:
        stuck_us = session.guest.stuck_us(now_us)
        if stuck_us >= GIVE_UP_US:
            session.handle(core.Leave(SessionRefused("the session was closed: its program stopped reading")))
            session.guest.close(at_once=True)
        elif stuck_us >= STALL_US:
            session.guest_stalled()
        else:
            session.guest.look()

    # --- the slow look
    async def _look_forever(self) -> None:
        while True:
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            if not self.sessions:
                continue
            try:
                await self._look()
            except PlatformError as error:
                log.info("session_look_failed", extra={"error": error.message})
            except Exception:
                log.exception("session_look_failed")

    async def _look(self) -> None:
        for session in self._open():
            if self._biller.due(session):
                self._biller.cut(session)
        await self._biller.write()  # first: a row tells only of the segment that runs
        await self._write_down()
        for session_id, to in await self._store.asked_moves(self._row.number):
            self._later(self._move_as_asked(session_id, to))
        await self._look_at_devices()

    async def _write_down(self) -> None:
        """The rows of those that changed; sessions that are over and written are forgotten."""
        settled = [session for session in self.sessions.values() if not self._biller.owes(session.id)]
        states = [_state_of(session, self._biller.running(session)) for session in settled]
        fresh = [state for state in states if self._written.get(state.id) != state]
        if fresh:
            await self._store.write(self._row.number, self._row.incarnation, fresh)
        self._written |= {state.id: state for state in states}
        for session_id in [session.id for session in self.sessions.values() if session.over.is_set()]:
            if session_id in self._written and self._written[session_id].state == core.State.ended:
                del self.sessions[session_id], self._written[session_id]

    async def _look_at_devices(self) -> None:
        """Sessions leave devices that drain; those of a device that is gone hear of it."""
        rows = {row.id: row for row in await self._devices.list_devices()}
        for session in self._open():
            if session.device is None:
                continue
            row = rows.get(session.device.post.device.id)
            if row is None or row.incarnation != session.device.post.device.incarnation:
                session.lease_lost()
            elif row.state == "draining" and session.mover is None and session.life.state is core.State.attached:
                self._later(self._move_away(session))

    async def _move_away(self, session: Session) -> None:
        try:
            await self.move(session.id)
        except DgsfError as error:  # it stays for now; the next look tries again
            log.info("session_not_moved", extra={"session": str(session.id), "error": error.message})

    async def _move_as_asked(self, session_id: UUID, to: str) -> None:
        session = self.sessions.get(session_id)
        if session_id in self._asked or (session is not None and session.mover is not None):
            return
        self._asked.add(session_id)  # until the answer is written the wish is still to be read
        trouble = None
        try:
            if session is None or not to or session.device_name != to:  # else it went there by itself meanwhile
                await self.move(session_id, to)
        except DgsfError as error:
            trouble = error.message
        try:
            await self._store.answer_move(session_id, trouble)
        finally:
            self._asked.discard(session_id)

    async def _close_old(self) -> None:
        """Sessions of an earlier life of this proxy are over; what they owe is billed first."""
        while True:
            try:
                owed = await self._store.unbilled_of_old(self._row.number, self._row.incarnation)
                await self._biller.write_for_dead(owed)
                await self._store.close_old(self._row.number, self._row.incarnation)
                return
            except StoreUnavailable as error:
                log.warning("old_sessions_not_closed", extra={"error": error.message})
            await asyncio.sleep(LOOK_SECONDS)

    async def _repeated(self, session: Session) -> int | None:
        """What was paid of the work that this session will repeat, if it goes on for one lost with its proxy."""
        lost, owner = session.owner.resumes, session.owner
        if lost is None:
            return None
        try:
            session.dummy = await self._store.was_dummy(lost, owner.tenant_id)
            return await self._store.resume(lost, session.id, owner.tenant_id)
        except StoreUnavailable as error:
            log.warning("resumed_session_not_found", extra={"session": str(lost), "error": error.message})
            return None

    def _later(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("session_task_failed", exc_info=error)


def _state_of(session: Session, segment: UUID | None) -> SessionState:
    state = session.life.state
    if state is core.State.ended and not session.over.is_set():
        state = core.State.lost  # until its slot is free it has not ended for anybody else
    unbilled_us, unbilled_nano = session.unbilled if segment is not None else (0, 0)
    return SessionState(
        id=session.id,
        tenant_id=session.owner.tenant_id,
        version_id=session.owner.version_id,
        device_id=session.device_id,
        state=str(state),
        generation=session.life.generation,
        memory_bytes=session.owner.memory_bytes,
        memory_used=session.meter.memory_bytes,
        bytes_up=session.guest.received,
        bytes_down=session.guest.sent,
        device_us=session.device_us,
        cost_nano=session.cost_nano,
        error_code=session.error.code if session.error is not None else None,
        started_at=session.started_wall,
        segment_id=segment,
        unbilled_us=unbilled_us,
        unbilled_nano=unbilled_nano,
    )
