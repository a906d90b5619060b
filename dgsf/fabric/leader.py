"""Standing by, leading, stepping down: one controller acts at a time.

The lease is a row in Postgres.  While another holds it, this process waits.  A leader that cannot renew
in time, or has lost the database, stops acting; it forgets what it knew and stands by again, which costs a
busy machine less than a new process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from dgsf.clock import Clock
from dgsf.core.leadership import Term
from dgsf.errors import PlatformError, StoreUnavailable
from dgsf.store.leader import Leadership

_log = logging.getLogger(__name__)
NAME = "controller"
TTL_SECONDS = 4.0
RENEW_SECONDS = 0.75
STANDBY_SECONDS = 0.5


class LeadershipLost(PlatformError):
    """This controller does not lead any more."""

    code = "leadership_lost"


class Leader:
    """One candidate."""

    def __init__(self, store: Leadership, holder: str, clock: Clock, ttl_s: float = TTL_SECONDS) -> None:
        self._store = store
        self._holder = holder
        self._clock = clock
        self._ttl_s = ttl_s
        self._term: Term | None = None

    def leads(self) -> bool:
        return self._term is not None and self._term.holds(self._clock.now_us())

    async def serve(self, work: Callable[[], Awaitable[None]]) -> None:
        """Term after term, each with work begun anew; returns when the work does, raises what else goes wrong."""
        ended = False
        while not ended:
            try:
                await self.run(work)
                ended = True
            except* (LeadershipLost, StoreUnavailable) as lost:
                _log.warning("leadership_lost", extra={"why": [str(error) for error in lost.exceptions]})

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait to be leader, then do the work until it ends or the lease does."""
        await self._stand_by()
        try:
            async with asyncio.TaskGroup() as tasks:
                renewing = tasks.create_task(self._renew())
                await work()
                renewing.cancel()
        finally:
            await self._step_down()

    async def _stand_by(self) -> None:
        told = False
        while self._term is None:
            sent = self._clock.now_us()
            with suppress(StoreUnavailable):
                epoch = await self._store.acquire(NAME, self._holder, self._ttl_s)
                if epoch is not None:
                    self._term = Term(epoch, int(self._ttl_s * 1e6), sent)
                    _log.info("leading", extra={"holder": self._holder, "epoch": epoch})
                    return
                if not told:
                    _log.info("standing_by", extra={"holder": self._holder})
                    told = True
            await asyncio.sleep(STANDBY_SECONDS)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            assert self._term is not None
            try:
                left = (self._term.until_us - self._clock.now_us()) / 1e6
                async with asyncio.timeout(max(left, 0.01)):
                    await self._renew_once()
            except TimeoutError as error:
                raise LeadershipLost("the lease could not be renewed in time") from error

    async def _renew_once(self) -> None:
        assert self._term is not None
        while True:
            sent = self._clock.now_us()
            try:
                if not await self._store.renew(NAME, self._holder, self._term.epoch, self._ttl_s):
                    raise LeadershipLost("another controller leads")
            except StoreUnavailable:
                await asyncio.sleep(0.1)  # until the lease runs out
                continue
            self._term = self._term.renewed(sent)
            return

    async def _step_down(self) -> None:
        term, self._term = self._term, None
        if term is not None:
            with suppress(StoreUnavailable, TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._store.release(NAME, self._holder, term.epoch)
