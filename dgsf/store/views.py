"""Rows of the pool as placement sees them: one translation for proxies, gateways and the leader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from dgsf.core.placement import DeviceView, NodeView
from dgsf.core.placement.model import PLENTY
from dgsf.store.rows import DeviceRow, LeaseRow


def view_of(row: DeviceRow, used_slots: int = 0, used_memory: int = 0) -> DeviceView:
    """A device of which so much is taken."""
    return DeviceView(
        id=row.id,
        type=row.type,
        kind=row.placed_kind,
        healthy=row.state == "healthy",
        slots=row.slots,
        memory_bytes=row.memory_bytes,
        free_slots=row.slots - used_slots,
        free_memory=row.memory_bytes - used_memory,
        speed=row.speed,
        price=float(row.price_nano_per_us),
        node=row.node,
        node_cpu_milli=_cpu_milli(row),
    )


def pool_views(rows: Iterable[DeviceRow], leases: Iterable[LeaseRow]) -> list[DeviceView]:
    """Devices with what their leases leave of them."""
    slots: Counter[int] = Counter()
    memory: Counter[int] = Counter()
    for lease in leases:
        slots[lease.device_id] += 1
        memory[lease.device_id] += lease.memory_bytes
    return [view_of(row, slots[row.id], memory[row.id]) for row in rows]


def node_views(rows: Sequence[DeviceRow], leases: Iterable[LeaseRow]) -> list[NodeView]:
    """The nodes of these devices with the processors that nobody has reserved."""
    node_of = {row.id: row.node for row in rows}
    taken: Counter[str] = Counter()
    for lease in leases:
        if lease.device_id in node_of:
            taken[node_of[lease.device_id]] += lease.cpu_milli
    nodes = {row.node: _cpu_milli(row) for row in rows}
    return [NodeView(name, has - taken[name]) for name, has in nodes.items()]


def _cpu_milli(row: DeviceRow) -> int:
    return PLENTY if row.node_cpus is None else 1000 * row.node_cpus
