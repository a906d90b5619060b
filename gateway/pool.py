"""The pool as callers may see it: devices for all, leases of one's own tenant (operators: all); drains; lost ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from dgsf.core.lookup import find_named
from dgsf.errors import Conflict
from dgsf.store.rows import DeviceRow, Role
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


async def drain(asked: Asked) -> Reply:
    """No new leases; sessions are moved away, workers finish and are given back."""
    return await _change(asked, asked.context.devices.drain, "draining")


async def restore(asked: Asked) -> Reply:
    """Back to work after a drain."""
    return await _change(asked, asked.context.devices.restore, "healthy")


async def forget(asked: Asked) -> Reply:
    """A lost device out of the listing; it is back in it if it ever starts again."""
    return await _change(asked, asked.context.devices.forget, "forgotten")


async def _change(asked: Asked, change: Callable[[int], Awaitable[DeviceRow | None]], wanted: str) -> Reply:
    row = _find(await asked.context.devices.list_devices(), asked.parameters["name"])
    changed = await change(row.id)
    if changed is None:
        raise Conflict(why_unchanged(row.name, row.state, wanted, is_host=row.is_host))
    return json_reply(DeviceInfo.of(changed))


def why_unchanged(name: str, state: str, wanted: str, *, is_host: bool = False) -> str:
    """Why a device of this state can not be drained, restored or forgotten."""
    if wanted == "forgotten" and is_host:
        return f"{name} is {state}; only a lost function host can be forgotten: DGSF_HOSTS=0 starts a node without one"
    if wanted == "forgotten":
        return f"{name} is {state}; only a lost device can be forgotten: take it out with 'dgsf devices drain' instead"
    if wanted == "draining":
        return f"{name} is {state}; only a running device can drain"
    already = " and takes work already" if state == "healthy" else ""
    return f"{name} is {state}{already}; only a draining device can be restored"


def _find(rows: list[DeviceRow], wanted: str) -> DeviceRow:
    """By number, or by name or enough of it."""
    known = {row.name: row for row in rows} | {str(row.id): row for row in rows}
    return known.get(wanted) or known[find_named(wanted, [row.name for row in rows], "device", "dgsf devices")]
