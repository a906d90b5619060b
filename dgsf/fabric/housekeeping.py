"""What the leader tidies up in the store: idempotency keys past their 24 hours, with the answers kept for them."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from dgsf.errors import StoreUnavailable
from dgsf.store.calls import CallStore

log = logging.getLogger(__name__)
PAUSE_SECONDS = 60.0
AT_ONCE = 1000


async def tidy_forever(calls: CallStore) -> None:
    """A little at a time, for as long as we lead."""
    while True:
        with contextlib.suppress(StoreUnavailable):
            while (forgotten := await calls.forget_old_keys(AT_ONCE)) > 0:
                log.info("old_keys_forgotten", extra={"keys": forgotten})
        await asyncio.sleep(PAUSE_SECONDS)
