"""The port between gateway and proxy: a call in, a stream of events out.

Both sides know this file and neither knows the other.  The proxy implements `CallPort`, in the
gateway's own process or behind a socket; the gateway cannot tell which.  A synchronous call is a stream
with one item, and `CallStream.result` is the short way to it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from dgsf.wire import shared
from dgsf.wire.messages import Codec, Failure


@dataclass(slots=True)
class Payload:
    """Bytes with a codec: held here, or in a file in shared memory that its last holder discards."""

    codec: int
    data: bytes = b""
    path: str = ""
    size: int = 0

    @classmethod
    def of(cls, codec: Codec, data: bytes) -> Payload:
        return cls(codec, data, "", len(data))

    def read(self) -> bytes:
        """All of it; for small payloads and tests."""
        if not self.path:
            return self.data
        with open(self.path, "rb") as file:
            return file.read()

    def discard(self) -> None:
        if self.path:
            shared.discard(self.path)
            self.path = ""

    @property
    def gone(self) -> bool:
        """Whether its file was discarded by another holder."""
        return self.size > len(self.data) and not self.path

    def open(self) -> int:
        """A descriptor for reading a shared payload; a worker's file is never followed to elsewhere."""
        return os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


@dataclass(slots=True)
class CallRequest:
    """One invocation, authenticated and bound; times are relative to its arrival."""

    id: UUID
    tenant_id: int
    version_id: int
    payload: Payload
    reply: int
    start_us: int
    timeout_us: int = 0  # 0: the function's own
    priority: int = 0
    attempt: int = 1
    keep: bool = False  # keep the answer in the store with the outcome
    given_up: bool = False  # cancelled because the platform stops: not the caller's doing, so nothing is charged


@dataclass(slots=True)
class CallResult:
    """The end of a call: committed, if it has a charge."""

    state: str
    payload: Payload | None = None
    failure: Failure | None = None
    queue_us: int = 0
    device_us: int = 0
    cost_nano: int = 0
    device: str = ""


def _nothing() -> None:
    """There is nothing left to cancel."""


class CallStream:
    """What a caller holds of a running call."""

    __slots__ = ("_cancel", "_ended", "_listener", "_waiter")

    def __init__(self, cancel: Callable[[], None]) -> None:
        self._cancel = cancel
        self._ended: CallResult | None = None
        self._waiter: asyncio.Future[CallResult] | None = None
        self._listener: Callable[[CallResult], None] | None = None

    async def result(self) -> CallResult:
        """The end of the call."""
        if self._ended is not None:
            return self._ended
        self._waiter = asyncio.get_running_loop().create_future()
        return await self._waiter

    def when_ended(self, listener: Callable[[CallResult], None]) -> None:
        """Call back at the end instead of being awaited; cheaper where thousands are under way."""
        if self._ended is not None:
            listener(self._ended)
        else:
            self._listener = listener

    def finish(self, result: CallResult) -> None:
        """Called once by the proxy's side."""
        self._ended = result
        self._cancel = _nothing  # it leads back to the call: a circle would leave each call to the collector
        if self._listener is not None:
            listener, self._listener = self._listener, None
            listener(result)
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(result)

    def cancel(self) -> None:
        """The caller went away; what the call used is still billed."""
        self._cancel()


class CallPort(Protocol):
    """Takes calls; never raises for a call that it cannot run, the stream tells."""

    def number_for(self, version_id: int) -> int:
        """The number of the proxy that will hold a call of this version; the call's id carries it."""
        ...

    def open(self, request: CallRequest) -> CallStream: ...
