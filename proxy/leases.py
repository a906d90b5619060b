"""A proxy's leases: taken before a worker starts, renewed together, given back when it has ended.

Lease time is Postgres time.  On this side a lease is good for dispatching until (our clock before the
renewal was sent) + 80 % of its time to live, so a proxy that was stopped for a while finds its leases spent
before it can send anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from dgsf.clock import Clock
from dgsf.errors import StoreUnavailable
from dgsf.store.leases import LeaseStore
from dgsf.store.rows import LeaseGrant, LeaseRow

log = logging.getLogger(__name__)
USABLE_SHARE = 0.8
RENEWALS_PER_TTL = 3


class LeaseKeeper:
    """Knows which leases this proxy holds and until when it may use them."""

    def __init__(self, store: LeaseStore, holder: str, incarnation: int, ttl_s: float, clock: Clock) -> None:
        self.holder = holder
        self.incarnation = incarnation
        self._store = store
        self._ttl_s = ttl_s
        self._clock = clock
        self._until_us: dict[LeaseGrant, int] = {}
        self._renewing: asyncio.Task[None] | None = None
        self._watchers: list[Callable[[LeaseGrant], None]] = []

    def watch(self, told: Callable[[LeaseGrant], None]) -> None:
        """Be told of every lease that is lost."""
        self._watchers.append(told)

    def start(self) -> None:
        self._renewing = asyncio.create_task(self._renew_forever())

    async def stop(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewing

    def usable(self, grant: LeaseGrant, now_us: int) -> bool:
        return now_us < self._until_us.get(grant, 0)

    async def grant(
        self, device_id: int, version_id: int | None, tenant_id: int, memory_bytes: int, cpu_milli: int = 0
    ) -> LeaseGrant | None:
        before = self._clock.now_us()
        grant = await self._store.grant(
            device_id, self.holder, self.incarnation, version_id, tenant_id, memory_bytes, self._ttl_s, cpu_milli
        )
        if grant is not None:
            self._until_us[grant] = self._usable_until(before)
        return grant

    async def release(self, grant: LeaseGrant) -> None:
        """Give a slot back; its worker has ended."""
        if self._until_us.pop(grant, None) is not None:
            with contextlib.suppress(StoreUnavailable):  # nobody renews it any more: it expires by itself
                await self._store.release(grant, self.holder)

    def forget(self, grant: LeaseGrant) -> None:
        """Its worker may still run and cannot be ended now: let it expire, who takes it over ends the worker."""
        self._until_us.pop(grant, None)

    async def reclaimable(self) -> list[LeaseRow]:
        """Leases that nobody rightfully uses: expired ones, and those of this proxy's earlier life."""
        return await self._store.reclaimable(None, self.holder, self.incarnation)

    async def take_over(self, row: LeaseRow) -> bool:
        """Free such a lease, after its worker has been reaped."""
        return await self._store.take_over(row.device_id, row.slot, row.epoch, self.holder, self.incarnation)

    def _usable_until(self, sent_us: int) -> int:
        return sent_us + int(self._ttl_s * USABLE_SHARE * 1e6)

    async def _renew_forever(self) -> None:
        while True:
            await asyncio.sleep(self._ttl_s / RENEWALS_PER_TTL)
            if not self._until_us:
                continue
            try:
                async with asyncio.timeout(self._ttl_s):
                    await self._renew()
            except (StoreUnavailable, TimeoutError):
                log.warning("lease_renewal_failed", extra={"leases": len(self._until_us)})

    async def _renew(self) -> None:
        before = self._clock.now_us()
        asked = set(self._until_us)
        held = set(await self._store.renew(asked, self.holder, self.incarnation, self._ttl_s))
        for grant in asked & set(self._until_us):
            if grant in held:
                self._until_us[grant] = self._usable_until(before)
            else:
                del self._until_us[grant]
                log.warning("lease_lost", extra={"device_id": grant.device_id, "slot": grant.slot})
                for told in self._watchers:
                    told(grant)
