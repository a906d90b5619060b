"""The client's end of a control connection to a device server, for controller and proxies.

Requests are answered in any order; each has its deadline.  Exit notices of watched holders come by
`on_exit`.  When the connection is lost every waiting request fails and `on_lost` is called once; a new
connection is the owner's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from dgsf.errors import ConnectionLost, DgsfError, ProtocolError
from dgsf.wire.frames import Kind
from dgsf.wire.link import Address, Link, adopt, connect_socket, host_id
from dgsf.wire.messages import ControlReply, ControlRequest, Done, WorkerExit, encode, reader

REQUEST_SECONDS = 10.0
_read_reply, _read_notice = reader(ControlReply), reader(WorkerExit)


def _ignore_exit(_notice: WorkerExit) -> None:
    """Nobody wants to know."""


def _ignore_loss() -> None:
    """Nobody wants to know."""


class DeviceControl(Link):
    """A connection by which workers are watched, stopped and killed."""

    def __init__(self) -> None:
        super().__init__()
        self.on_exit: Callable[[WorkerExit], None] = _ignore_exit
        self.on_lost: Callable[[], None] = _ignore_loss
        self._waiting_replies: dict[int, asyncio.Future[ControlReply]] = {}
        self._last_stream = 0

    @classmethod
    async def open(
        cls, address: Address, secret: bytes, *, here: str | None = None, tcp: bool = False, timeout: float = 5.0
    ) -> Self:
        """Connect and authenticate; ConnectionLost or ProtocolError if that fails."""
        sock = await connect_socket(address, secret, here=here or host_id(), tcp=tcp, timeout=timeout)
        return await adopt(sock, cls())

    async def request(self, message: ControlRequest, timeout: float = REQUEST_SECONDS) -> ControlReply:
        """Ask and wait for the answer; a refusal is raised as the error that it is."""
        self._last_stream += 1
        stream = self._last_stream & 0xFFFFFFFF
        future: asyncio.Future[ControlReply] = asyncio.get_running_loop().create_future()
        self._waiting_replies[stream] = future
        try:
            self.send(Kind.REQUEST, stream, encode(message))
            async with asyncio.timeout(timeout):
                reply = await future
        except TimeoutError:
            raise ConnectionLost(f"the device server gave no answer within {timeout:g} s") from None
        finally:
            self._waiting_replies.pop(stream, None)
        if isinstance(reply, Done) and reply.failure is not None:
            raise reply.failure.error()
        return reply

    # --- Link
    def frame_received(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == Kind.REPLY:
            reply = _read_reply(body)
            future = self._waiting_replies.get(stream)
            if future is not None and not future.done():
                future.set_result(reply)
        elif kind == Kind.NOTICE:
            self.on_exit(_read_notice(body))
        else:
            raise ProtocolError(f"a device server does not send frames of kind {kind}")

    def link_lost(self, error: DgsfError) -> None:
        for future in self._waiting_replies.values():
            if not future.done():
                future.set_exception(ConnectionLost(error.message))
        self.on_lost()
