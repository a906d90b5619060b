"""Rows as the rest of the platform sees them: plain frozen records, no asyncpg types.

Money is in nano-units and time in microseconds, as integers.  Nothing here touches the database.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, StrEnum
from statistics import median
from typing import Any
from uuid import UUID

from dgsf.core.devices import DUMMY, HOST
from dgsf.core.distance import Measured


class Role(StrEnum):
    """What an API key may do; each includes the ones below it."""

    operator = "operator"
    deploy = "deploy"
    invoke = "invoke"


class Outcome(IntEnum):
    """What became of one row of a flush."""

    accepted = 0  # written now
    already = 1  # this very end had been written before: a repeat of the same flush
    stale = 2  # somebody else has ended the call or begun a later attempt; nothing was written


@dataclass(frozen=True, slots=True)
class KeyRow:
    key_id: str
    tenant_id: int
    tenant_name: str
    role: Role
    sha256: bytes
    name: str
    created_at: datetime
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class FunctionVersion:
    version_id: int
    function_id: int
    tenant_id: int
    name: str
    number: int
    digest: bytes
    metadata: dict[str, Any]
    created_at: datetime


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """How far a device is from one proxy, as that proxy measured it."""

    us: float
    near: bool  # on the same machine
    sessions: bool  # the proxy has sessions


@dataclass(frozen=True, slots=True)
class DeviceRow:
    id: int
    name: str
    node: str
    kind: str
    type: str
    memory_bytes: int
    slots: int
    speed: float
    price_nano_per_us: int
    state: str
    incarnation: int
    host_id: str
    unix_path: str | None
    tcp_host: str | None
    tcp_port: int | None
    info: dict[str, Any]
    heartbeat_at: datetime

    @property
    def is_host(self) -> bool:
        """Whether it only runs function bodies: a server without a device."""
        return self.kind == HOST

    @property
    def placed_kind(self) -> str:
        """Its kind to placement: of those with dummy values it is one of their own."""
        return DUMMY if self.info.get("options", {}).get("values") == DUMMY else self.kind

    @property
    def node_cpus(self) -> int | None:
        """Processors of its node; None: its server did not tell."""
        found: int | None = self.info.get("cpus")
        return found

    @property
    def measured(self) -> list[Measured]:
        """The round trips between it and proxies."""
        found = self.info.get("round_trips", {}).items()
        return [Measured(int(proxy), self.is_host, each["us"], each["near"], each["sessions"]) for proxy, each in found]

    @property
    def round_trip_us(self) -> float | None:
        """The middle one of those; None: nobody has measured yet."""
        trips = [each.round_trip_us for each in self.measured]
        return round(median(trips), 1) if trips else None

    @property
    def usable(self) -> bool:
        """Whether it is a device that takes work now."""
        return self.state == "healthy" and not self.is_host


@dataclass(frozen=True, slots=True)
class LeaseGrant:
    """The right to one slot, as long as its epoch stands."""

    device_id: int
    slot: int
    epoch: int
    device_incarnation: int


@dataclass(frozen=True, slots=True)
class LeaseRow:
    device_id: int
    slot: int
    epoch: int
    device_incarnation: int
    device_name: str
    holder: str
    holder_incarnation: int
    version_id: int | None
    function_name: str | None
    tenant_id: int | None
    tenant_name: str | None
    memory_bytes: int
    granted_at: datetime
    expires_at: datetime
    expired: bool  # by Postgres' clock
    held_s: float = 0.0  # since it was granted, by the same clock
    cpu_milli: int = 0  # of the node's processors, in thousandths


@dataclass(frozen=True, slots=True)
class ProxyRow:
    number: int
    name: str
    node: str
    host_id: str
    incarnation: int
    unix_path: str | None
    tcp_host: str | None
    tcp_port: int | None
    heartbeat_age_s: float
    session_unix_path: str | None = None  # the door for sessions; none: it takes no sessions from outside
    session_tcp_host: str | None = None
    session_tcp_port: int | None = None


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that has not ended, as its proxy knows it."""

    id: UUID
    attempt: int
    tenant_id: int
    version_id: int
    created_at: float  # Unix seconds
    claimed_by: int | None = None


@dataclass(slots=True)
class FinishedCall:
    """The end of a call, to be committed; not frozen because one is made per call on the hot path."""

    id: UUID
    attempt: int
    tenant_id: int
    version_id: int
    state: str
    error_code: str | None
    device_id: int | None
    queue_us: int
    device_us: int
    cost_nano: int
    created_at: float  # Unix seconds
    charged: bool  # a usage charge belongs to this end, even one of 0
    response: bytes | None = None


@dataclass(frozen=True, slots=True)
class CallRow:
    id: UUID
    tenant_id: int
    version_id: int
    state: str
    attempt: int
    device_id: int | None
    error_code: str | None
    queue_us: int
    device_us: int
    cost_nano: int
    charged: bool
    created_at: datetime
    finished_at: datetime | None
    claimed_by: int | None
    request: bytes | None
    response: bytes | None


@dataclass(frozen=True, slots=True)
class Reservation:
    """What an idempotency key stands for: this call (new), or the one that had it before."""

    new: bool
    call_id: UUID
    same_body: bool
    state: str
    attempt: int
    response: bytes | None


@dataclass(frozen=True, slots=True)
class UsageRow:
    tenant_name: str
    function_name: str
    calls: int
    device_us: int
    amount_nano: int  # refunds taken off
    refunds: int


@dataclass(frozen=True, slots=True)
class LedgerCheck:
    charges: int
    postings: int
    unbalanced: int
    double_charged: int
    uncharged_success: int
    orphan_postings: int
    orphan_charges: int
    impossible: int

    @property
    def clean(self) -> bool:
        return not (
            self.unbalanced
            or self.double_charged
            or self.uncharged_success
            or self.orphan_postings
            or self.orphan_charges
            or self.impossible
        )
