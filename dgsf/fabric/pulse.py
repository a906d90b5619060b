"""The heartbeat of one device: asks its server how it is, four times a second.

It reports what it hears and draws no conclusion.  It keeps one control connection, and opens a new one
when that is lost; that nobody listens any more is worth telling at once.  A question is not given up
before the pool gives up the server: a starved machine would only have to answer it twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from dgsf.core.pool import Beat, Refused
from dgsf.errors import DgsfError
from dgsf.fabric.control import DeviceControl
from dgsf.wire.link import Address
from dgsf.wire.messages import Health, Status

_ANSWER_SECONDS = 30.0  # longer than the pool ever waits: a late answer still counts


@dataclass(frozen=True, slots=True)
class Target:
    """The server to ask, as registered."""

    name: str
    incarnation: int
    address: Address


class Pulse:
    """Asks one server until it is stopped."""

    def __init__(self, target: Target, secret: bytes, *, here: str, tcp: bool) -> None:
        self._target = target
        self._secret = secret
        self._here = here
        self._tcp = tcp
        self._control: DeviceControl | None = None

    async def ask(self) -> Health:
        """One beat; raises DgsfError if there is no answer."""
        if self._control is None or self._control.lost:
            self._control = await DeviceControl.open(
                self._target.address, self._secret, here=self._here, tcp=self._tcp, timeout=_ANSWER_SECONDS
            )
        reply = await self._control.request(Status(), timeout=_ANSWER_SECONDS)
        assert isinstance(reply, Health)
        return reply

    async def run(self, period: float, report: Callable[[Beat | Refused], None]) -> None:
        """Beat until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                began = loop.time()
                found = await self._listen()
                if found is not None:
                    report(found)
                await asyncio.sleep(max(0.01, began + period - loop.time()))
        finally:
            self.close()

    def close(self) -> None:
        if self._control is not None and not self._control.lost:
            self._control.close()
        self._control = None

    async def _listen(self) -> Beat | Refused | None:
        target = self._target
        try:
            health = await self.ask()
        except DgsfError as error:
            self.close()
            refused = isinstance(error.__cause__, ConnectionRefusedError | FileNotFoundError)
            return Refused(target.name, target.incarnation) if refused else None
        return Beat(target.name, health.incarnation, health.ready)
