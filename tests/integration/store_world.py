"""A small world for store tests: one tenant, one function, ids, and calls that have ended."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from dgsf.ids import CallIds
from dgsf.store.calls import CallStore
from dgsf.store.database import Database
from dgsf.store.ledger import Ledger
from dgsf.store.registry import Registry
from dgsf.store.rows import FinishedCall, OpenCall


@dataclass
class World:
    database: Database
    tenant_id: int
    version_id: int
    ids: CallIds = field(default_factory=CallIds)

    @property
    def calls(self) -> CallStore:
        return CallStore(self.database)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.database)

    def open(self, call_id: UUID | None = None, attempt: int = 1, claimed_by: int = 1) -> OpenCall:
        call_id = call_id or self.ids.mint(1)
        return OpenCall(call_id, attempt, self.tenant_id, self.version_id, time.time(), claimed_by)

    def ended(self, call_id: UUID | None = None, **changes: Any) -> FinishedCall:
        values: dict[str, Any] = {
            "id": call_id or self.ids.mint(1),
            "attempt": 1,
            "tenant_id": self.tenant_id,
            "version_id": self.version_id,
            "state": "succeeded",
            "error_code": None,
            "device_id": None,
            "queue_us": 10,
            "device_us": 100,
            "cost_nano": 300,
            "created_at": time.time(),
            "charged": True,
        }
        return FinishedCall(**{**values, **changes})


async def make_world(database: Database) -> World:
    registry = Registry(database)
    tenant_id = await registry.create_tenant("acme")
    version = await registry.deploy(tenant_id, "square", b"d" * 32, {"python": "3.11"}, b"code")
    return World(database, tenant_id, version.version_id)
