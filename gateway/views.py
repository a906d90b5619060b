"""The JSON shapes that the gateway speaks; OpenAPI's schemas are made from these classes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from dgsf.store.rows import DeviceRow, FunctionVersion, KeyRow, LeaseRow, UsageRow
from dgsf.store.sessions import SessionInfo


class Problem(msgspec.Struct, frozen=True):
    """An error (RFC 9457); further fields depend on the code."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    retryable: bool
    call_id: str | None


class ParameterView(msgspec.Struct, frozen=True):
    """One parameter of a function; `kind` is the name that Python's `inspect` gives it."""

    name: str
    kind: str
    required: bool
    annotation: str | None = None


class Manifest(msgspec.Struct, frozen=True):
    """The metadata of a deploy; `digest` is the sha256 of the code bytes in hex."""

    signature: list[ParameterView]
    python: str
    digest: str
    options: dict[str, Any] = {}
    doc: str | None = None
    is_async: bool = False
    is_generator: bool = False


class FunctionView(msgspec.Struct, frozen=True):
    """A function and its current version."""

    name: str
    version: int
    digest: str
    created_at: datetime
    options: dict[str, Any]
    signature: list[dict[str, Any]]
    python: str
    doc: str | None
    attach: Literal["near", "fabric"]  # where it runs, also if the platform chose

    @classmethod
    def of(cls, row: FunctionVersion) -> FunctionView:
        meta = row.metadata
        return cls(
            row.name,
            row.number,
            row.digest.hex(),
            row.created_at,
            meta.get("options", {}),
            meta.get("signature", []),
            meta.get("python", ""),
            meta.get("doc"),
            _attach_of(meta),
        )


class DeployedView(FunctionView, frozen=True):
    """A function that was deployed just now."""

    attach_reason: str | None = None  # why it runs there, if its options left that to the platform


def _attach_of(meta: dict[str, Any]) -> Literal["near", "fabric"]:
    """What the deploy noted; versions from before that have it in their options alone."""
    return "fabric" if meta.get("attach", meta.get("options", {}).get("attach")) == "fabric" else "near"


class FunctionList(msgspec.Struct, frozen=True):
    """One page; `next` is the `after` of the following page, null on the last."""

    functions: list[FunctionView]
    next: str | None


class DeviceInfo(msgspec.Struct, frozen=True):
    """A device of the pool."""

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
    heartbeat_at: datetime
    node_cpus: int | None  # processors of its node, for all that runs there; null: not known
    round_trip_us: float | None  # from a proxy and back, as measured (the middle one of several); null: not yet

    @classmethod
    def of(cls, row: DeviceRow) -> DeviceInfo:
        return cls(**{name: getattr(row, name) for name in cls.__struct_fields__})


class DeviceList(msgspec.Struct, frozen=True):
    """The pool: its devices, and the function hosts, which run bodies of functions whose device is remote."""

    devices: list[DeviceInfo]
    hosts: list[DeviceInfo] = []


class LeaseInfo(msgspec.Struct, frozen=True):
    """Who holds which slot of which device."""

    device_name: str
    slot: int
    epoch: int
    holder: str
    function_name: str | None
    tenant_name: str | None
    memory_bytes: int
    cpu_milli: int  # of its node's processors, in thousandths of one
    granted_at: datetime
    expires_at: datetime
    expired: bool

    @classmethod
    def of(cls, row: LeaseRow) -> LeaseInfo:
        return cls(**{name: getattr(row, name) for name in cls.__struct_fields__})


class LeaseList(msgspec.Struct, frozen=True):
    leases: list[LeaseInfo]


class SessionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A remote device that is wanted; sizes such as "1GiB"."""

    gpu: str | list[str] = "any"
    memory: str | int = "1GiB"
    start_seconds: Annotated[float, msgspec.Meta(gt=0, le=3600)] | None = None  # to wait for a device
    resumes: Annotated[str, msgspec.Meta(max_length=64)] = ""  # a session that was lost with its proxy


class NewSession(msgspec.Struct, frozen=True):
    """A ticket, the session's own key, and where its door is; the ticket is good once and for a minute."""

    id: str
    ticket: str
    key: str
    expires_at: datetime
    host_id: str
    unix_path: str
    tcp_host: str
    tcp_port: int


class SessionList(msgspec.Struct, frozen=True):
    sessions: list[SessionInfo]


class MoveRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a session should go: a device's name, or empty for any other device."""

    to: Annotated[str, msgspec.Meta(max_length=256)] = ""


class MoveWish(msgspec.Struct, frozen=True):
    """The wish is noted; the session's proxy carries it out."""

    id: str
    to: str


class UsageInfo(msgspec.Struct, frozen=True):
    """What a function used; `amount_nano` is net of refunds."""

    tenant_name: str
    function_name: str
    calls: int
    device_us: int
    amount_nano: int
    refunds: int

    @classmethod
    def of(cls, row: UsageRow) -> UsageInfo:
        return cls(**{name: getattr(row, name) for name in cls.__struct_fields__})


class UsageList(msgspec.Struct, frozen=True):
    usage: list[UsageInfo]


class KeyInfo(msgspec.Struct, frozen=True):
    """An API key without its secret."""

    key_id: str
    role: str
    name: str
    tenant_name: str
    created_at: datetime
    revoked_at: datetime | None

    @classmethod
    def of(cls, row: KeyRow) -> KeyInfo:
        return cls(row.key_id, row.role.value, row.name, row.tenant_name, row.created_at, row.revoked_at)


class KeyList(msgspec.Struct, frozen=True):
    keys: list[KeyInfo]


class KeyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key to make; without `tenant` it belongs to the asking key's tenant."""

    role: Literal["operator", "deploy", "invoke"]
    name: Annotated[str, msgspec.Meta(max_length=128)] = ""
    tenant: Annotated[str, msgspec.Meta(min_length=1, max_length=128)] | None = None


class NewKey(msgspec.Struct, frozen=True):
    """A new key; its text is shown this once."""

    key_id: str
    key: str
    role: str
    name: str
    tenant_name: str


class Health(msgspec.Struct, frozen=True):
    status: str
    reason: str | None = None
