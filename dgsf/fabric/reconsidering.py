"""What the leader does for attach="auto": a function whose way has clearly changed becomes a new version.

A version never changes, so the other choice is a version of its own with the same code; calls take it as they take
any deploy.  It must have been the better one for several looks in a row.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from dgsf.core.attaching import reconsidered
from dgsf.core.perfmodel import Attach
from dgsf.errors import StoreUnavailable
from dgsf.store.catalogue import Function
from dgsf.store.devices import DeviceStore
from dgsf.store.registry import Registry

log = logging.getLogger(__name__)
PAUSE_SECONDS = 30.0
IN_A_ROW = 3


class Reconsidering:
    """Looks at all functions of attach="auto"."""

    def __init__(self, registry: Registry, devices: DeviceStore) -> None:
        self._registry = registry
        self._devices = devices
        self._better: dict[int, tuple[Attach, int]] = {}  # version: the other choice, and for how many looks

    async def look(self) -> None:
        versions = await self._registry.auto_functions()
        rows = await self._devices.list_devices() if versions else []
        better = {}
        for version in versions:
            wanted = reconsidered(Function.of(version).options, rows)
            if wanted is not None:
                before, looks = self._better.get(version.version_id, (wanted, 0))
                better[version.version_id] = (wanted, looks + 1 if before == wanted else 1)
        self._better = better
        for version in versions:
            wanted, looks = better.get(version.version_id, (None, 0))
            if wanted is not None and looks >= IN_A_ROW:
                made = await self._registry.attach_anew(version.version_id, wanted)
                log.info("attach_changed", extra={"function": version.name, "attach": wanted, "version": made})


async def reconsider_forever(registry: Registry, devices: DeviceStore) -> None:
    """For as long as we lead."""
    reconsidering = Reconsidering(registry, devices)
    while True:
        await asyncio.sleep(PAUSE_SECONDS)
        with contextlib.suppress(StoreUnavailable):
            await reconsidering.look()
