"""The embedded database as a part that is kept running."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess

from dgsf.store.embedded import EmbeddedPostgres


class RunningPostgres:
    """One life of the server."""

    def __init__(self, server: EmbeddedPostgres, process: subprocess.Popen[bytes]) -> None:
        self._server = server
        self._process = process  # the server forgets it once its stop has begun
        self.pid = process.pid

    @classmethod
    async def start(cls, server: EmbeddedPostgres) -> RunningPostgres:
        await server.start()
        assert server.process is not None
        return cls(server, server.process)

    async def wait(self) -> int:
        return await self._server.wait()

    async def stop(self, grace: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._server.stop()

    def kill(self) -> None:
        """Immediate shutdown: it ends its own processes and takes its pid file along; the next start recovers."""
        self._process.send_signal(signal.SIGQUIT)
