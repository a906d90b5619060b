"""A device server as the database knows it, and the way back from a row to the server."""

from __future__ import annotations

from dataclasses import dataclass

from dgsf.core.topology import Place
from dgsf.store.devices import DeviceStore
from dgsf.store.rows import DeviceRow
from dgsf.wire.link import Address


@dataclass(frozen=True, slots=True)
class Registered:
    """What the controller needs of a row."""

    device_id: int
    incarnation: int
    actor: str
    node_id: str
    address: Address

    @classmethod
    def of(cls, row: DeviceRow) -> Registered:
        actor, node_id = row.info.get("actor", ""), row.info.get("node_id", "")
        return cls(row.id, row.incarnation, actor, node_id, Address.of(row))


async def register(store: DeviceStore, place: Place, actor: str, address: Address) -> DeviceRow:
    """A new life of this device: the row tells its incarnation."""
    spec = place.spec
    cpus = {"cpus": spec.node_cpus} if spec.node_cpus else {}
    return await store.register(
        name=place.name,
        node=place.node,
        kind=spec.kind,
        type=spec.type,
        memory_bytes=spec.memory_bytes,
        slots=spec.slots,
        speed=spec.speed,
        price_nano_per_us=spec.price_nano_per_us,
        host_id=address.host_id,
        unix_path=address.unix_path,
        tcp_host=address.tcp_host,
        tcp_port=address.tcp_port,
        info={"actor": actor, "node_id": place.node_id, "index": spec.index, "options": spec.options} | cpus,
    )
