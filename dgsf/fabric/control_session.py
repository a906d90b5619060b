"""The server's end of a control connection: requests in, replies and exit notices out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from dgsf.errors import DgsfError, ProtocolError
from dgsf.wire.frames import Kind
from dgsf.wire.link import Link
from dgsf.wire.messages import (
    ControlReply,
    ControlRequest,
    Done,
    Failure,
    Watch,
    WorkerExit,
    encode,
    reader,
)

log = logging.getLogger(__name__)
MAX_WAITING_REQUESTS = 256
_read_request = reader(ControlRequest)

Answer = Callable[[ControlRequest], Awaitable[ControlReply]]


class ControlSession(Link):
    """One proxy's or controller's connection."""

    def __init__(self, answer: Answer, forget: Callable[[ControlSession], None]) -> None:
        super().__init__()
        self._answer = answer
        self._forget = forget
        self._holders: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def notify(self, holder: str, notice: WorkerExit) -> None:
        """Tell of a worker's end, if its holder is watched here."""
        if holder in self._holders and not self.lost:
            self.send(Kind.NOTICE, 0, encode(notice))

    def frame_received(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind != Kind.REQUEST:
            raise ProtocolError(f"a control connection does not take frames of kind {kind}")
        if len(self._tasks) >= MAX_WAITING_REQUESTS:
            raise ProtocolError(f"over {MAX_WAITING_REQUESTS} requests wait for their answers")
        request = _read_request(body)
        if isinstance(request, Watch):  # at once, so that no notice slips by behind it
            self._holders.add(request.holder)
            self.send(Kind.REPLY, stream, encode(Done()))
            return
        task = asyncio.create_task(self._reply(stream, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reply(self, stream: int, request: ControlRequest) -> None:
        reply: ControlReply
        try:
            reply = await self._answer(request)
        except DgsfError as error:
            reply = Done(False, Failure.of(error))
        except Exception as error:
            log.exception("control_request_failed", extra={"request": type(request).__name__})
            reply = Done(False, Failure.of(DgsfError(f"the device server failed: {error!r}")))
        if not self.lost:
            self.send(Kind.REPLY, stream, encode(reply))

    def link_lost(self, error: DgsfError) -> None:
        self._forget(self)
