"""The pool's devices: who they are, how to reach them, how they are.

An incarnation number makes everybody refuse the servers of a device's earlier lives; it rises when a
device registers and when it is declared lost, and its leases are freed in the same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import asyncpg
import msgspec

from dgsf.store.database import Database
from dgsf.store.queries import sql
from dgsf.store.rows import DeviceRow, RoundTrip


class DeviceStore:
    """Devices as rows."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(
        self,
        *,
        name: str,
        node: str,
        kind: str,
        type: str,
        memory_bytes: int,
        slots: int,
        speed: float,
        price_nano_per_us: int,
        host_id: str,
        unix_path: str | None,
        tcp_host: str | None,
        tcp_port: int | None,
        info: dict[str, Any] | None = None,
    ) -> DeviceRow:
        """A new life of the device of this name: healthy, higher incarnation, no leases."""
        async with self._database.transaction() as connection:
            record = await connection.fetchrow(
                sql("register_device"),
                *(name, node, kind, type, memory_bytes, slots, speed, price_nano_per_us),
                *(host_id, unix_path, tcp_host, tcp_port, json.dumps(info or {})),
            )
            await connection.execute(sql("free_device_leases"), record["id"])
            await connection.execute(sql("touch_meta"))
        return _device(record)

    async def version(self) -> int:
        """Rises with every change of a device but its heartbeats and round trips."""
        async with self._database.acquire() as connection:
            found: int = await connection.fetchval(sql("meta_version"))
        return found

    async def list_devices(self) -> list[DeviceRow]:
        async with self._database.acquire() as connection:
            return [_device(record) for record in await connection.fetch(sql("list_devices"))]

    async def beat(self, device_ids: Sequence[int]) -> None:
        """These were heard of just now. Caches need not know, so the metadata version stays."""
        async with self._database.acquire() as connection:
            await connection.execute(sql("beat_devices"), list(device_ids))

    async def write_round_trips(self, proxy: int, found: Sequence[tuple[int, int, RoundTrip]]) -> None:
        """What this proxy measured: device, its incarnation, and how far it is."""
        ids, incarnations = [each[0] for each in found], [each[1] for each in found]
        entries = [msgspec.json.encode(each[2]).decode() for each in found]
        async with self._database.acquire() as connection:
            await connection.execute(sql("write_round_trips"), str(proxy), ids, incarnations, entries)

    async def set_state(self, device_id: int, incarnation: int, state: str) -> bool:
        """False if the device is of another incarnation by now."""
        async with self._database.transaction() as connection:
            changed = await connection.fetchval(sql("set_device_state"), device_id, incarnation, state)
            if changed is not None:
                await connection.execute(sql("touch_meta"))
        return changed is not None

    async def drain(self, device_id: int) -> DeviceRow | None:
        """No new leases from now on; None if it does not run."""
        return await self._change(sql("drain_device"), device_id)

    async def restore(self, device_id: int) -> DeviceRow | None:
        """Takes leases again; None if it was not draining."""
        return await self._change(sql("restore_device"), device_id)

    async def forget(self, device_id: int) -> DeviceRow | None:
        """Out of the listing until it registers again; None if it is not lost."""
        return await self._change(sql("forget_device"), device_id)

    async def _change(self, statement: str, device_id: int) -> DeviceRow | None:
        async with self._database.transaction() as connection:
            record = await connection.fetchrow(statement, device_id)
            if record is not None:
                await connection.execute(sql("touch_meta"))
        return None if record is None else _device(record)

    async def mark_lost(self, device_id: int, incarnation: int) -> bool:
        """Raises the incarnation and frees the leases; False if it is another incarnation by now."""
        async with self._database.transaction() as connection:
            lost = await connection.fetchval(sql("lose_device"), device_id, incarnation)
            if lost is not None:
                await connection.execute(sql("free_device_leases"), device_id)
                await connection.execute(sql("touch_meta"))
        return lost is not None


def _device(record: asyncpg.Record) -> DeviceRow:
    return DeviceRow(**{**record, "info": json.loads(record["info"])})
