"""The proxies: their stable numbers, their addresses, their heartbeats.

A proxy's number is part of every call id that it mints, so a name keeps its number; an incarnation
tells an earlier process of the same name that it has been replaced.
"""

from __future__ import annotations

from dgsf.store.database import Database
from dgsf.store.queries import sql
from dgsf.store.rows import ProxyRow

SessionDoor = tuple[str, str, int]  # Unix path, TCP host and port where guests come in
_NO_DOOR = (None, None, None)


class ProxyStore:
    """Proxies as rows."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(
        self,
        name: str,
        node: str,
        host_id: str,
        unix_path: str | None = None,
        tcp_host: str | None = None,
        tcp_port: int | None = None,
        session_door: SessionDoor | None = None,
    ) -> ProxyRow:
        """The number of this name, with a higher incarnation than before."""
        async with self._database.transaction() as connection:
            await connection.execute(sql("lock_proxies"))
            await connection.execute(sql("forget_old_proxies"), name)
            record = await connection.fetchrow(
                sql("register_proxy"), name, node, host_id, unix_path, tcp_host, tcp_port, *(session_door or _NO_DOOR)
            )
        return ProxyRow(**record)

    async def beat(self, number: int, incarnation: int) -> bool:
        """False if a later process of the same name has taken over."""
        async with self._database.acquire() as connection:
            return await connection.fetchval(sql("beat_proxy"), number, incarnation) is not None

    async def list_proxies(self, max_age_s: float) -> list[ProxyRow]:
        """Those heard of within that time."""
        async with self._database.acquire() as connection:
            return [ProxyRow(**record) for record in await connection.fetch(sql("list_proxies"), max_age_s)]
