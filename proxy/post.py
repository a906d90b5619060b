"""Who wants a slot, and where a process stands that has one. Plain records of workers and executors alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dgsf.store.rows import DeviceRow, LeaseGrant

Role = Literal["function", "session"]


@dataclass(frozen=True, slots=True)
class Want:
    """A slot that is wanted: for whom, of which devices, how large, and what is known of the time."""

    role: Role
    tenant_id: int
    version_id: int | None
    function: str  # its name; empty: an attached program
    types: tuple[str, ...]
    memory_bytes: int
    network: bool = False
    cpu_milli: int = 0  # of the node's processors
    session_bytes: int = 0  # memory on another device, of the session that it will be given
    guess_s: float = 0.0  # how long it will hold the slot, as long as none of its kind was seen to end
    run_s: float = 0.0  # expected of the call that it is wanted for,
    run_on: str = ""  # on devices of this type
    deadline_s: float | None = None  # from now; by then that call should be done

    @property
    def name(self) -> str:
        """What is kept for it on a device goes by this name."""
        return name_of(self.tenant_id, self.function)


@dataclass(frozen=True, slots=True)
class Post:
    """Where a process stands: its device, its lease, its process and its folder in shared memory."""

    device: DeviceRow
    lease: LeaseGrant
    worker_id: int
    pid: int
    shared_dir: str
    sharing: bool


def name_of(tenant_id: int | None, function: str | None) -> str:
    """A tenant's function, or what a tenant attaches without one."""
    return f"{tenant_id}/{function or ''}"
