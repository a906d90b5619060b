"""Tenants, API keys, functions and their versions.

Every change raises the metadata version in its own transaction and notifies `dgsf_meta`, so that
caches in other processes follow.  It never sees a key's text again after making it, and never opens
a function's code.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import asyncpg

from dgsf.errors import NotFound
from dgsf.ids import ApiKey, new_api_key
from dgsf.store.database import Database
from dgsf.store.notices import Stop, listen
from dgsf.store.queries import sql
from dgsf.store.rows import FunctionVersion, KeyRow, Role

META_CHANNEL = "dgsf_meta"


class Registry:
    """Who may call, and what can be called."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create_tenant(self, name: str) -> int:
        """The id of the tenant of this name, made with its account if it is new."""
        async with self._database.transaction() as connection:
            tenant_id: int = await connection.fetchval(sql("create_tenant"), name)
            await connection.execute(sql("create_account"), tenant_id, name)
        return tenant_id

    async def create_key(self, tenant_id: int, role: Role | str, name: str) -> ApiKey:
        """A new key; its text is in the answer and nowhere else."""
        key = new_api_key()
        async with self._database.transaction() as connection:
            await connection.execute(sql("create_key"), key.key_id, tenant_id, Role(role).value, key.digest, name)
            await connection.execute(sql("touch_meta"))
        return key

    async def find_key(self, key_id: str) -> KeyRow | None:
        """The key of this id, also a revoked one."""
        async with self._database.acquire() as connection:
            record = await connection.fetchrow(sql("find_api_key"), key_id)
        return None if record is None else _key(record)

    async def list_keys(self, tenant_id: int) -> list[KeyRow]:
        async with self._database.acquire() as connection:
            return [_key(record) for record in await connection.fetch(sql("list_api_keys"), tenant_id)]

    async def revoke_key(self, tenant_id: int, key_id: str) -> bool:
        """Whether there was such a key to revoke."""
        return await self._change("revoke_key", tenant_id, key_id)

    async def deploy(
        self, tenant_id: int, name: str, digest: bytes, metadata: dict[str, Any], code: bytes
    ) -> FunctionVersion:
        """Always a new version; revives the name if it was retired."""
        async with self._database.transaction() as connection:
            function_id = await connection.fetchval(sql("name_function"), tenant_id, name)
            added = await connection.fetchrow(sql("add_version"), function_id, digest, json.dumps(metadata), code)
            await connection.execute(sql("set_current_version"), function_id, added["id"])
            await connection.execute(sql("touch_meta"))
        return FunctionVersion(
            added["id"], function_id, tenant_id, name, added["number"], digest, metadata, added["created_at"]
        )

    async def find_function(self, tenant_id: int, name: str) -> FunctionVersion | None:
        """The current version of a function that is not retired."""
        async with self._database.acquire() as connection:
            record = await connection.fetchrow(sql("find_function"), tenant_id, name)
        return None if record is None else _version(record)

    async def list_functions(self, tenant_id: int, limit: int = 100, after: str = "") -> list[FunctionVersion]:
        """One page in name order; `after` is the last name of the page before."""
        async with self._database.acquire() as connection:
            records = await connection.fetch(sql("list_functions"), tenant_id, after or "", limit)
        return [_version(record) for record in records]

    async def function_names(self, tenant_id: int, limit: int) -> list[str]:
        """The first of them in name order."""
        async with self._database.acquire() as connection:
            return [record["name"] for record in await connection.fetch(sql("function_names"), tenant_id, limit)]

    async def auto_functions(self) -> list[FunctionVersion]:
        """Current versions of all tenants' functions whose place the platform chooses."""
        async with self._database.acquire() as connection:
            return [_version(record) for record in await connection.fetch(sql("auto_functions"))]

    async def attach_anew(self, version_id: int, attach: str) -> int | None:
        """A new version with the same code, attached like this; its number, or None if it is not current any more."""
        async with self._database.transaction() as connection:
            function_id = await connection.fetchval(sql("lock_current_version"), version_id)
            if function_id is None:
                return None
            added = await connection.fetchrow(sql("copy_version"), version_id, attach)
            await connection.execute(sql("set_current_version"), function_id, added["id"])
            await connection.execute(sql("touch_meta"))
        number: int = added["number"]
        return number

    async def retire(self, tenant_id: int, name: str) -> bool:
        """Whether there was such a function to retire."""
        return await self._change("retire_function", tenant_id, name)

    async def find_version(self, version_id: int) -> FunctionVersion | None:
        async with self._database.acquire() as connection:
            record = await connection.fetchrow(sql("find_version"), version_id)
        return None if record is None else _version(record)

    async def code_of(self, version_id: int) -> bytes:
        async with self._database.acquire() as connection:
            code: bytes | None = await connection.fetchval(sql("code_of"), version_id)
        if code is None:
            raise NotFound(f"there is no function version {version_id}")
        return code

    async def meta_version(self) -> int:
        """Grows with every change of keys, functions and devices."""
        async with self._database.acquire() as connection:
            version: int = await connection.fetchval(sql("meta_version"))
        return version

    async def listen(self, channel: str, callback: Callable[[], None]) -> Stop:
        """Calls back on each notification and each (re)connection; await the answer's call to end it."""
        return await listen(self._database, channel, callback)

    async def _change(self, statement: str, *arguments: object) -> bool:
        async with self._database.transaction() as connection:
            changed = await connection.fetchval(sql(statement), *arguments)
            if changed is not None:
                await connection.execute(sql("touch_meta"))
        return changed is not None


def _key(record: asyncpg.Record) -> KeyRow:
    return KeyRow(**{**record, "role": Role(record["role"])})


def _version(record: asyncpg.Record) -> FunctionVersion:
    return FunctionVersion(**{**record, "metadata": json.loads(record["metadata"])})
