"""Keeps one zygote running: starts it, and starts another when it is lost, more slowly each time.

The first start must succeed, or the device server does not start at all; later ones are tried for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable

from dgsf.errors import DgsfError, NoDevice
from dgsf.fabric.sandbox.features import Feature
from dgsf.fabric.zygote_client import ZygoteClient, ZygoteOptions

log = logging.getLogger(__name__)
FIRST_DELAY, LAST_DELAY, STEADY_SECONDS = 0.05, 5.0, 10.0


def log_missing(features: Iterable[Feature]) -> None:
    for feature in features:
        if not feature.present:
            log.warning("sandbox_feature_missing", extra={"feature": feature.name, "detail": feature.detail})


class ZygoteKeeper:
    """The zygote of a device server, whichever it is now."""

    def __init__(self, options: ZygoteOptions, name: str) -> None:
        self._options = options
        self._name = name
        self._client: ZygoteClient | None = None
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self.baseline = 0
        self.detail = ""

    @property
    def ready(self) -> bool:
        return self._client is not None and not self._client.lost.is_set()

    @property
    def client(self) -> ZygoteClient:
        if self._client is None or self._client.lost.is_set():
            raise NoDevice(f"device {self._name} cannot start workers now: {self.detail or 'its zygote is starting'}")
        return self._client

    async def start(self) -> None:
        await self._launch()
        self._task = asyncio.create_task(self._keep(), name=f"zygote of {self._name}")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        await self._end_client()

    async def replace(self) -> None:
        """End the present zygote with all its workers; another one follows."""
        if self._client is not None:
            await self._client.stop()

    async def _launch(self) -> None:
        client = ZygoteClient(self._options)
        try:
            ready = await client.start()
        except BaseException:
            await client.stop()
            raise
        self._client, self.baseline, self.detail = client, ready.resident_bytes, ""
        level = logging.INFO if ready.threads == 1 else logging.ERROR
        facts = {"device": self._name, "pid": client.pid, "threads": ready.threads, "import_ms": ready.import_ms}
        log.log(level, "zygote_ready", extra=facts | {"absent": ready.absent, "resident_bytes": ready.resident_bytes})
        log_missing(ready.features)

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            if self._client is not None:
                await self._client.lost.wait()
            self._failures = 0 if loop.time() - began > STEADY_SECONDS else self._failures + 1
            await self._end_client()
            self.detail = f"its zygote was lost and is started again ({self._failures} times in a row)"
            log.error("zygote_lost", extra={"device": self._name, "failures": self._failures})
            await asyncio.sleep(min(LAST_DELAY, FIRST_DELAY * 2 ** min(self._failures, 10)))
            try:
                await self._launch()
            except DgsfError as error:
                self.detail = f"its zygote does not start: {error.message}"
                log.error("zygote_start_failed", extra={"device": self._name, "error": error.message})

    async def _end_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.stop()
