"""What a database needs before the first call: its tables, a tenant, and a key in client.json.

Safe to repeat at every start.  A key that still works is kept, so that clients need not change.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

from dgsf.errors import ConfigError, StartError, StoreUnavailable
from dgsf.ids import key_digest, key_id_of, same_digest
from dgsf.paths import Layout, write_private
from dgsf.store.database import Database
from dgsf.store.devices import DeviceStore
from dgsf.store.migrate import migrate
from dgsf.store.registry import Registry
from dgsf.store.rows import Role
from dgsf.supervisor.arrivals import Arrivals

TENANT = "default"
_LOOK_SECONDS = 0.1
_CHECK_SECONDS = 10.0
_STORE_SECONDS = 30.0  # everything starts at once here, and nobody waits for an answer yet


async def prepare_database(url: str, layout: Layout, *, fresh_fabric: bool) -> str:
    """Bring the database up to date; returns the operator's API key."""
    database = await Database.connect(url, name="dgsf up", max_size=2, timeout=_STORE_SECONDS)
    try:
        await migrate(database)
        if fresh_fabric:
            await _forget_servers(database, layout)
        return await _operator_key(Registry(database), layout.client_file)
    finally:
        await database.close()


async def check_database(url: str) -> None:
    """A database of somebody else's that cannot be used is told before anything starts."""
    try:
        database = await Database.connect(url, name="dgsf up", max_size=1, timeout=_CHECK_SECONDS)
    except (StoreUnavailable, ConfigError) as error:
        reason = error.message.removesuffix("; try again")
        raise StartError(
            f"the database of --database-url (DGSF_DATABASE_URL) cannot be used: {reason}; "
            "correct it, start that server, or leave it out for an embedded one"
        ) from None
    await database.close()


async def devices_arrived(url: str, arrivals: Arrivals, say: Callable[[str], None]) -> bool:
    """Waits for them; False if the database was away meanwhile: the caller asks again."""
    try:
        await _arrive(url, arrivals, say)
    except StoreUnavailable:
        return False
    return True


async def _arrive(url: str, arrivals: Arrivals, say: Callable[[str], None]) -> None:
    database = await Database.connect(url, name="dgsf up", max_size=1, timeout=_STORE_SECONDS)
    try:
        devices, done = DeviceStore(database), False
        while not done:
            done, words = arrivals.look(await devices.list_devices(), time.monotonic())
            if words:
                say(words)
            if not done:
                await asyncio.sleep(_LOOK_SECONDS)
    finally:
        await database.close()


def write_client_file(path: Path, url: str, api_key: str) -> None:
    write_private(path, json.dumps({"url": url, "api_key": api_key}, indent=1) + "\n")


async def _forget_servers(database: Database, layout: Layout) -> None:
    """Device servers of an earlier run on this machine are dead; nobody must take them for ready."""
    devices = DeviceStore(database)
    for row in await devices.list_devices():
        if row.state != "lost" and (row.unix_path or "").startswith(f"{layout.run_dir}/"):
            await devices.mark_lost(row.id, row.incarnation)


async def _operator_key(registry: Registry, client_file: Path) -> str:
    tenant_id = await registry.create_tenant(TENANT)
    kept = _key_in(client_file)
    if kept and await _works(registry, kept):
        return kept
    return (await registry.create_key(tenant_id, Role.operator, "dgsf up")).text


async def _works(registry: Registry, text: str) -> bool:
    row = await registry.find_key(key_id_of(text) or "")
    usable = row is not None and row.revoked_at is None and row.role is Role.operator
    return usable and same_digest(row.sha256, key_digest(text))  # type: ignore[union-attr]  # it is usable


def _key_in(path: Path) -> str:
    try:
        found = json.loads(path.read_text())["api_key"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return ""
    except OSError as error:
        raise StartError(f"cannot read {path}: {error.strerror}") from error
    return found if isinstance(found, str) else ""
