"""A live move: the whole state of a session goes from one executor to another while its commands wait.

The new executor is there before the old one is asked, so the pause is only as long as the copying.  An executor
in the middle of a transfer says "not now" and is asked again a moment later.  Once the old one has begun to give its
state away there is no way back: if the move fails then, the device counts as lost and the guest replays.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from dgsf.core import session as core
from dgsf.errors import Conflict, DgsfError, SessionLost
from dgsf.wire.frames import FLAG_MORE, HEADER_BYTES, Kind
from proxy.sessions.cutter import Cut
from proxy.sessions.device_link import DeviceLink
from proxy.sessions.opening import Opener

if TYPE_CHECKING:
    from proxy.sessions.session import Session

log = logging.getLogger(__name__)
ROOM_SECONDS = 5.0  # to find another device
COPY_SECONDS = 60.0
TRIES = 50
AGAIN_SECONDS = 0.05


class _NotNow(Exception):
    """The old executor cannot be interrupted just here."""


class Mover:
    """One move of one session."""

    def __init__(self, session: Session, opener: Opener) -> None:
        self.new: DeviceLink | None = None
        self._session = session
        self._opener = opener
        self._old: DeviceLink | None = None
        self.given = False  # the old executor has given all of its state away
        self._giving = False  # it has begun to
        self._result: asyncio.Future[None] | None = None

    async def move(self, to: str = "") -> str:
        """Returns the new device's name; an error if the session stays where it is or could not be kept."""
        session, self._old = self._session, self._session.device
        if session.mover is not None or self._old is None or session.life.state is not core.State.attached:
            raise Conflict(f"the session is {session.life.state} now and cannot be moved")
        session.mover = self
        try:
            self.new = await self._find(to)
            for _ in range(TRIES):
                try:
                    await self._copy()
                    return self.new.post.device.name
                except _NotNow:
                    await asyncio.sleep(AGAIN_SECONDS)
            raise Conflict("the session has been in the middle of transfers all the time; try again later")
        finally:
            session.mover = None
            if self.new is not None and self.new is not session.device:
                await self._opener.close(self.new)

    def state_received(self, link: DeviceLink, cut: Cut) -> bool:
        """A piece of state from the old executor, or the new one's word that it has it all."""
        if self._result is None or self._result.done() or self.new is None:
            return False
        if link is self.new:
            self._result.set_result(None)
        elif not self._giving and cut.size == HEADER_BYTES and not cut.flags & FLAG_MORE:
            self._result.set_exception(_NotNow())
        else:
            self._giving, self.given = True, not cut.flags & FLAG_MORE
            self.new.pass_on(cut.pieces, cut.size)
        return True

    def new_is_full(self, full: bool) -> None:
        if self._old is not None:
            self._old.pause("move") if full else self._old.resume("move")

    def failed(self, error: DgsfError) -> None:
        """The new executor is gone."""
        if self._result is not None and not self._result.done():
            self._result.set_exception(error)

    def stop(self) -> None:
        """The session has ended or lost its device meanwhile."""
        self.failed(SessionLost("the session ended, or its device was lost, while it moved"))

    async def _find(self, to: str) -> DeviceLink:
        session = self._session
        assert self._old is not None
        here = self._old.post.device
        if to == here.name:
            raise Conflict(f"the session is on {to} already")
        found = await self._opener.open(
            session.owner,
            session,
            frozenset({here.id}),
            only=to,
            seconds=ROOM_SECONDS,
            dummy=session.dummy,
        )
        if found.post.device.id == here.id:
            await self._opener.close(found)
            raise Conflict("no other device has room for the session now; see 'dgsf leases'")
        return found

    async def _copy(self) -> None:
        session = self._session
        assert self._old is not None
        assert self.new is not None
        if session.device is not self._old or self.new.lost:
            raise SessionLost("the session ended, or a device was lost, before it could move")
        self._result, self._giving, self.given = asyncio.get_running_loop().create_future(), False, False
        session.handle(core.Move())
        try:
            self._old.stop_echo()
            self._old.send(Kind.STATE, 0)
            async with asyncio.timeout(COPY_SECONDS):
                await self._result
        except _NotNow:
            session.handle(core.NotMoved())
            raise
        except (DgsfError, TimeoutError) as error:
            self._give_up(error)
            raise SessionLost(f"the move failed: {error or 'the state was not copied in time'}") from error
        session.rebind(self.new)

    def _give_up(self, error: BaseException) -> None:
        """The old executor may have stopped working: as good as lost, the guest replays."""
        session = self._session
        if session.life.state is core.State.moving:
            lost = SessionLost(f"the session's move to another device failed: {error or 'not in time'}")
            session.handle(core.DeviceLost(session.life.generation, lost))
