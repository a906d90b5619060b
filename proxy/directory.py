"""The devices as a proxy sees them: their rows, what is free on them, and a control connection to each.

The control connection tells how a worker ended and takes orders to stop or kill one.  It belongs to one
incarnation of a device; when the device server is replaced, a new one is opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from dgsf.errors import DgsfError
from dgsf.fabric.control import DeviceControl
from dgsf.store.devices import DeviceStore
from dgsf.store.leases import LeaseStore
from dgsf.store.rows import DeviceRow, LeaseRow
from dgsf.wire.link import Address
from dgsf.wire.messages import ControlRequest, Watch, WorkerExit

log = logging.getLogger(__name__)
EXIT_SECONDS = 3.0
REQUEST_SECONDS = 10.0
WorkerKey = tuple[int, int, int]  # device id, incarnation, worker id


class Directory:
    """Finds devices and talks to their servers."""

    def __init__(
        self, devices: DeviceStore, leases: LeaseStore, secret: bytes, here: str, tcp: bool, holder: str
    ) -> None:
        self._devices = devices
        self._leases = leases
        self._secret = secret
        self._holder = holder
        self.here = here
        self.tcp = tcp
        self._known: tuple[int, list[DeviceRow]] | None = None  # version, rows
        self._controls: dict[tuple[int, int], DeviceControl] = {}
        self._opening: dict[tuple[int, int], asyncio.Lock] = {}
        self._exits: dict[WorkerKey, asyncio.Future[WorkerExit]] = {}

    async def rows_and_leases(self) -> tuple[list[DeviceRow], list[LeaseRow]]:
        """Every device, and who holds what of them now, whichever proxy it is."""
        return await asyncio.gather(self._rows(), self._leases.list_leases(None))

    async def _rows(self) -> list[DeviceRow]:
        """The very same list as long as nothing has changed: a large pool takes long to read and to look at.

        The version is read first, so rows are never older than it says.
        """
        version = await self._devices.version()
        if self._known is None or self._known[0] != version:
            self._known = (version, await self._devices.list_devices())
        return self._known[1]

    async def draining(self) -> frozenset[int]:
        """Devices that an operator takes out of use."""
        return frozenset(row.id for row in await self._devices.list_devices() if row.state == "draining")

    async def control(self, device: DeviceRow) -> DeviceControl:
        """The control connection to this incarnation of a device."""
        key = (device.id, device.incarnation)
        async with self._opening.setdefault(key, asyncio.Lock()):
            control = self._controls.get(key)
            if control is None or control.lost:
                control = await DeviceControl.open(Address.of(device), self._secret, here=self.here, tcp=self.tcp)
                control.on_exit = lambda notice: self._exited(key, notice)
                await control.request(Watch(self._holder), REQUEST_SECONDS)
                self._controls[key] = control
            return control

    def expect_exit(self, device: DeviceRow, worker_id: int) -> asyncio.Future[WorkerExit]:
        """A future for the notice of a worker's end; asked for before the worker gets its first call."""
        key = (device.id, device.incarnation, worker_id)
        if key not in self._exits:
            self._exits[key] = asyncio.get_running_loop().create_future()
        return self._exits[key]

    async def exit_of(self, device: DeviceRow, worker_id: int) -> WorkerExit | None:
        """How a worker ended; None if its device server cannot tell any more."""
        waiting = self.expect_exit(device, worker_id)
        try:
            async with asyncio.timeout(EXIT_SECONDS):
                if not waiting.done():
                    await self.control(device)  # a device server that is gone cannot tell
                return await asyncio.shield(waiting)
        except (TimeoutError, DgsfError):
            return None
        finally:
            self.forget_exit(device, worker_id)

    def forget_exit(self, device: DeviceRow, worker_id: int) -> None:
        self._exits.pop((device.id, device.incarnation, worker_id), None)

    async def order(self, device: DeviceRow, message: ControlRequest) -> bool:
        """Send an order to a device server; False if it cannot be reached (then its workers are gone or fenced)."""
        try:
            control = await self.control(device)
            await control.request(message, REQUEST_SECONDS)
        except (DgsfError, TimeoutError) as error:
            log.info(
                "order_failed", extra={"device": device.name, "order": type(message).__name__, "error": str(error)}
            )
            return False
        return True

    def close(self) -> None:
        for control in list(self._controls.values()):
            with contextlib.suppress(DgsfError):
                control.close()

    def _exited(self, key: tuple[int, int], notice: WorkerExit) -> None:
        waiting = self._exits.get((*key, notice.worker_id))
        if waiting is not None and not waiting.done():
            waiting.set_result(notice)
