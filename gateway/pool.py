"""The pool as callers may see it: devices for all, leases of one's own tenant (operators: all)."""

from __future__ import annotations

from dgsf.store.rows import Role
from gateway.handling import Asked
from gateway.reply import Reply, json_reply
from gateway.views import DeviceInfo, DeviceList, LeaseInfo, LeaseList


async def devices(asked: Asked) -> Reply:
    rows = await asked.context.devices.list_devices()
    devices, hosts = [row for row in rows if not row.is_host], [row for row in rows if row.is_host]
    return json_reply(DeviceList([DeviceInfo.of(row) for row in devices], [DeviceInfo.of(row) for row in hosts]))


async def leases(asked: Asked) -> Reply:
    everyone = asked.caller.role is Role.operator
    rows = await asked.context.leases.list_leases(None if everyone else asked.tenant_id)
    return json_reply(LeaseList([LeaseInfo.of(row) for row in rows]))
