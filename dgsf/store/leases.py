"""Who holds which slot of which device, until when, under which epoch.

Time is Postgres' own.  Granting locks the device's row, so nothing is ever given twice.  An expired
lease is not free: it is first taken over, after the device server has killed and reaped its worker.
"""

from __future__ import annotations

from collections.abc import Iterable

from dgsf.store.database import Database
from dgsf.store.queries import sql
from dgsf.store.rows import LeaseGrant, LeaseRow


class LeaseStore:
    """Leases as rows."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def grant(
        self,
        device_id: int,
        holder: str,
        holder_incarnation: int,
        version_id: int | None,
        tenant_id: int | None,
        memory_bytes: int,
        ttl_s: float,
        cpu_milli: int = 0,
    ) -> LeaseGrant | None:
        """A free slot of a healthy device with enough free bytes, on a node with enough processors, or None."""
        async with self._database.acquire() as connection:
            record = await connection.fetchrow(
                sql("grant_lease"),
                *(device_id, holder, holder_incarnation, version_id, tenant_id, memory_bytes, ttl_s, cpu_milli),
            )
        return None if record is None else LeaseGrant(device_id=device_id, **record)

    async def renew(
        self, grants: Iterable[LeaseGrant], holder: str, holder_incarnation: int, ttl_s: float
    ) -> list[LeaseGrant]:
        """Prolongs these leases, and says which of them this holder still has."""
        known = list(grants)
        columns = ([g.device_id for g in known], [g.slot for g in known], [g.epoch for g in known])
        async with self._database.acquire() as connection:
            records = await connection.fetch(sql("renew_leases"), holder, holder_incarnation, ttl_s, *columns)
        return [LeaseGrant(**record) for record in records]

    async def release(self, grant: LeaseGrant, holder: str) -> bool:
        """Gives a slot back; False if it was not held under this epoch any more."""
        async with self._database.acquire() as connection:
            epoch = await connection.fetchval(sql("release_lease"), grant.device_id, grant.slot, grant.epoch, holder)
        return epoch is not None

    async def reclaimable(self, device_id: int | None, holder: str, holder_incarnation: int) -> list[LeaseRow]:
        """What may be taken over: expired, or of an earlier life of this holder."""
        async with self._database.acquire() as connection:
            records = await connection.fetch(sql("reclaimable_leases"), device_id, holder, holder_incarnation)
        return [LeaseRow(**record) for record in records]

    async def take_over(
        self,
        device_id: int,
        slot: int,
        epoch: int,
        holder: str | None = None,
        holder_incarnation: int | None = None,
    ) -> bool:
        """Frees a slot whose old worker is dead; False if it was renewed or freed meanwhile."""
        async with self._database.acquire() as connection:
            raised = await connection.fetchval(
                sql("take_over_lease"), device_id, slot, epoch, holder, holder_incarnation
            )
        return raised is not None

    async def list_leases(self, tenant_id: int | None = None) -> list[LeaseRow]:
        """What is held now, of one tenant or of all."""
        async with self._database.acquire() as connection:
            return [LeaseRow(**record) for record in await connection.fetch(sql("list_leases"), tenant_id)]
