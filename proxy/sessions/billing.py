"""The bills of attached programs: what a session used since the last one becomes a call row with its charge.

A session of a function is paid by the function's calls and has no bill here.  A segment is written at the end of a
session and each minute of a long one, under an id of its own that it has from its start until the database has said
yes: so it may be sent again after an unknown outcome, and lands once.  The running segment stands in the session's row,
from where the next life of a killed proxy bills it: what was used since the row was last written is all that is lost.
"""

from __future__ import annotations

import asyncio
import logging
from uuid import UUID

from dgsf.clock import Clock
from dgsf.errors import StoreUnavailable
from dgsf.ids import CallIds
from dgsf.store.calls import CallStore
from dgsf.store.rows import FinishedCall
from dgsf.store.sessions import Unbilled
from proxy.sessions.session import Session

log = logging.getLogger(__name__)
ATTACHED_VERSION = 0  # nobody's function: `usage` shows it as "(attached)"
SEGMENT_SECONDS = 60.0
AGAIN_SECONDS = (0.1, 5.0)


class Biller:
    """Bills the sessions of one proxy."""

    def __init__(self, calls: CallStore, proxy_number: int, clock: Clock) -> None:
        self._calls = calls
        self._number = proxy_number
        self._clock = clock
        self._ids = CallIds()
        self._open: dict[UUID, FinishedCall] = {}  # segments that the database has not confirmed
        self._owing: dict[UUID, UUID] = {}  # whose they are
        self._running: dict[UUID, UUID] = {}  # per session the id of the segment to come
        self._billed_us: dict[UUID, int] = {}  # when a session's last segment ended

    def due(self, session: Session) -> bool:
        """Whether its running segment is long enough."""
        since = self._billed_us.setdefault(session.id, self._clock.now_us())
        return session.owner.version_id is None and self._clock.now_us() - since >= SEGMENT_SECONDS * 1e6

    def cut(self, session: Session) -> None:
        """Close the running segment, if anything was used in it; it is written at the next `write`."""
        self._billed_us[session.id] = self._clock.now_us()
        if session.ended:
            del self._billed_us[session.id]
        if session.owner.version_id is not None:
            return
        segment_id = self.running(session)
        used = session.take_usage()
        if segment_id is not None:
            del self._running[session.id]
            device_us, cost_nano, _, device_id = used
            owed = Unbilled(segment_id, session.owner.tenant_id, device_id, device_us, cost_nano, self._clock.wall())
            self._open[segment_id] = bill_of(owed)
            self._owing[segment_id] = session.id

    def running(self, session: Session) -> UUID | None:
        """The id of the segment in which it has used something that is not billed; None if there is none."""
        if session.owner.version_id is not None or not any(session.unbilled):
            return None
        if session.id not in self._running:
            self._running[session.id] = self._ids.mint(self._number)
        return self._running[session.id]

    def owes(self, session_id: UUID) -> bool:
        """Whether a closed segment of it is not confirmed: until then its row must tell of it."""
        return session_id in self._owing.values()

    async def write(self) -> None:
        """Commit all closed segments; StoreUnavailable leaves them for the next time."""
        segments = list(self._open.values())
        if segments:
            await self._calls.finish(segments)  # accepted now, or already by an earlier try
            for segment in segments:
                del self._open[segment.id]
                self._owing.pop(segment.id, None)

    async def write_for_dead(self, owed: list[Unbilled]) -> None:
        """Commit what sessions of an earlier life owe; those that it had billed itself land nowhere."""
        await self._calls.finish([bill_of(each) for each in owed])

    async def write_all(self, seconds: float) -> None:
        """At the end of the proxy's life: try again for so long."""
        pause = AGAIN_SECONDS[0]
        try:
            async with asyncio.timeout(seconds):
                while self._open:
                    try:
                        await self.write()
                    except StoreUnavailable:
                        await asyncio.sleep(pause)
                        pause = min(2 * pause, AGAIN_SECONDS[1])
        except TimeoutError:
            log.error("segments_not_billed", extra={"segments": len(self._open)})


def bill_of(owed: Unbilled) -> FinishedCall:
    return FinishedCall(
        id=owed.id,
        attempt=1,
        tenant_id=owed.tenant_id,
        version_id=ATTACHED_VERSION,
        state="succeeded",
        error_code=None,
        device_id=owed.device_id,
        queue_us=0,
        device_us=owed.device_us,
        cost_nano=owed.cost_nano,
        created_at=owed.created_at,
        charged=True,
    )
