"""The words of placement: what is asked for, what the pool looks like, and the answer.

A request wants one slot of a device, a share of one (in thousandths), several whole devices, or none at all.  The
answer names devices or says why not.  Nothing here decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

ANY = "any"
WHOLE = 1000  # thousandths of one device
NO_SLICE, NEW_SLICE = -1, 0  # instead of the number of a slice
Whose = tuple[str, str]  # a tenant's function: tenant, function
PLENTY = 2**60  # more than any node has, where a view does not say


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a device that belongs to one tenant as long as it holds a task of theirs."""

    tenant: str
    share: int
    used: int


@dataclass(frozen=True, slots=True)
class DeviceView:
    """What placement knows of a device."""

    id: int
    type: str
    kind: str
    healthy: bool
    slots: int
    memory_bytes: int
    free_slots: int
    free_memory: int
    speed: float = 1.0
    price: float = 1.0  # of the same time as that of others, in any unit
    node: str = ""  # empty: a node of its own
    node_cpu_milli: int = PLENTY  # what its node has in all, in thousandths of a processor
    free_share: int | None = None  # thousandths; None: counted by slots
    busy_until_s: float = 0.0  # when the last of its tasks is expected to end; 0: idle
    slices: tuple[Slice, ...] = ()
    weights: frozenset[str] = frozenset()  # what is resident in its memory


@dataclass(frozen=True, slots=True)
class NodeView:
    """What placement knows of a node beside its devices."""

    name: str
    free_cpu_milli: int = PLENTY
    free_memory: int = PLENTY
    cpu_milli: int = PLENTY  # what it has in all, as `DeviceView.node_cpu_milli`
    memory_bytes: int = PLENTY


@dataclass(frozen=True, slots=True)
class Request:
    """What a worker needs.

    `types` are acceptable device types in order of preference; 'A|B' are equals.  `share` is in thousandths of one
    device, None means one slot, 0 no device at all; `devices` above 0 asks for so many whole ones on one node.
    """

    types: tuple[str, ...]
    memory_bytes: int  # on the device
    tenant: str = ""
    function: str = ""
    share: int | None = None
    devices: int = 0
    cpu_milli: int = 0
    host_memory: int = 0
    duration_s: float = 0.0  # expected; 0: not known
    deadline_s: float | None = None  # from now
    run_s: float = 0.0  # expected of what has the deadline, if that is less than the whole: one call of a worker
    run_on: str = ""  # the device type on which it takes that; empty: the fastest
    weights: str = ""  # name of the weights it loads
    scales: bool = True  # a faster device shortens it

    def __post_init__(self) -> None:
        if not self.types or not all(self.types):
            raise ValueError(f"types={self.types}: expected at least one type of device, such as 'any'")
        if self.share is not None and not 0 <= self.share <= WHOLE:
            raise ValueError(f"share={self.share}: expected 0 to {WHOLE} thousandths of a device, or None for a slot")
        if min(self.memory_bytes, self.devices, self.cpu_milli, self.host_memory) < 0:
            raise ValueError(f"{self}: memory, devices and processors are 0 or more")
        if not (
            0 <= self.duration_s < math.inf and 0 <= self.run_s < math.inf and 0 <= (self.deadline_s or 0) < math.inf
        ):
            raise ValueError(f"{self}: times are in seconds, 0 or more")

    @property
    def whole(self) -> bool:
        """Whether it wants whole devices, however many slots those have."""
        return self.devices > 0 or self.share == WHOLE

    @property
    def whose(self) -> Whose:
        """Functions of one name that belong to different tenants are different functions."""
        return (self.tenant, self.function)

    @property
    def due_s(self) -> float:
        """How long what has the deadline takes; 0: not known."""
        return self.run_s or self.duration_s

    @property
    def shape(self) -> tuple[tuple[str, ...], int, int | None, int, int, int]:
        """What decides where it fits: requests of one shape are scored alike."""
        return (self.types, self.memory_bytes, self.share, self.devices, self.cpu_milli, self.host_memory)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where it goes: a row of the pool, the columns taken in it, and what that takes of each."""

    devices: tuple[int, ...]  # device ids
    node: str
    row: int
    columns: tuple[int, ...]
    share: int  # thousandths taken of each device, slices included
    owned_slice: int = NO_SLICE  # number of the tenant's slice on that device, where the policy makes slices


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing was placed; `ever` says whether waiting can help."""

    reason: str
    ever: bool = True
