"""What the leader tidies up in the store: idempotency keys past their 24 hours, and sessions long over."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from dgsf.errors import StoreUnavailable
from dgsf.store.calls import CallStore
from dgsf.store.sessions import SessionStore

log = logging.getLogger(__name__)
PAUSE_SECONDS = 60.0
AT_ONCE = 1000


async def tidy_forever(calls: CallStore, sessions: SessionStore) -> None:
    """A little at a time, for as long as we lead."""
    while True:
        with contextlib.suppress(StoreUnavailable):
            while (forgotten := await calls.forget_old_keys(AT_ONCE)) > 0:
                log.info("old_keys_forgotten", extra={"keys": forgotten})
            await sessions.forget_old(AT_ONCE)
        await asyncio.sleep(PAUSE_SECONDS)
