"""The embedded database as a part that is kept running."""

from __future__ import annotations

import asyncio
import contextlib

from dgsf.store.embedded import EmbeddedPostgres


class RunningPostgres:
    """One life of the server."""

    def __init__(self, server: EmbeddedPostgres, pid: int) -> None:
        self._server = server
        self.pid = pid

    @classmethod
    async def start(cls, server: EmbeddedPostgres) -> RunningPostgres:
        await server.start()
        assert server.process is not None
        return cls(server, server.process.pid)

    async def wait(self) -> int:
        return await self._server.wait()

    async def stop(self, grace: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._server.stop()

    def kill(self) -> None:
        if self._server.process is not None:
            self._server.process.kill()
