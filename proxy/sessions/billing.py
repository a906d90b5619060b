"""The bills of attached programs: what a session used since the last one becomes a call row with its charge.

A session of a function is paid by the function's calls and has no bill here.  A segment is written at the end of a
session and each minute of a long one, under an id of its own that it keeps until the database has said yes: so it
may be sent again after an unknown outcome, and lands once.  A proxy that is killed loses at most one segment.
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
        used = session.take_usage()
        if used.device_us == 0 and used.cost_nano == 0:
            return
        segment = FinishedCall(
            id=self._ids.mint(self._number),
            attempt=1,
            tenant_id=session.owner.tenant_id,
            version_id=ATTACHED_VERSION,
            state="succeeded",
            error_code=None,
            device_id=used.device_id,
            queue_us=0,
            device_us=used.device_us,
            cost_nano=used.cost_nano,
            created_at=self._clock.wall(),
            charged=True,
        )
        self._open[segment.id] = segment

    async def write(self) -> None:
        """Commit all closed segments; StoreUnavailable leaves them for the next time."""
        segments = list(self._open.values())
        if segments:
            await self._calls.finish(segments)  # accepted now, or already by an earlier try
            for segment in segments:
                del self._open[segment.id]

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
