"""A gateway's connection to a proxy in another process: the same CallPort, over frames.

Many calls share one link.  When it is lost, every call on it ends as `connection_lost`; the gateway then
settles them with the store, because nobody else can know how they ended.
"""

from __future__ import annotations

from collections.abc import Callable

from dgsf.errors import ConnectionLost, DgsfError, PlatformError, ProtocolError
from dgsf.wire.frames import FLAG_GIVEN_UP, Kind
from dgsf.wire.link import Address, adopt, connect_socket
from dgsf.wire.messages import Credit, Failure, Invoke, InvokeEnd, Message, encode, reader, split
from dgsf.wire.ports import CallRequest, CallResult, CallStream
from dgsf.wire.shared import SharedArea
from dgsf.wire.streams import PayloadLink

_read_end = reader(InvokeEnd)


class ProxyLink(PayloadLink):
    """One proxy apart."""

    def __init__(self, number: int, area: SharedArea, inline_bytes: int, limit: int, sharing: bool) -> None:
        super().__init__(area, inline_bytes, limit, sharing)
        self.number = number
        self.on_lost: Callable[[], None] = lambda: None
        self.answered_us = self._now_us()
        self._streams: dict[int, CallStream] = {}
        self._spoiled: set[int] = set()  # streams whose result finds no room here
        self._next = 1

    @classmethod
    async def connect(
        cls,
        address: Address,
        number: int,
        secret: bytes,
        area: SharedArea,
        inline_bytes: int,
        limit: int,
        *,
        here: str,
        tcp: bool,
    ) -> ProxyLink:
        sock = await connect_socket(address, secret, here=here, tcp=tcp)
        sharing = sock.family.name == "AF_UNIX"
        return await adopt(sock, cls(number, area, inline_bytes, limit, sharing))

    @property
    def open_calls(self) -> int:
        return len(self._streams)

    def open(self, request: CallRequest) -> CallStream:
        stream_id = self._next
        self._next = stream_id + 1 if stream_id < 0xFFFFFFFE else 1
        stream = CallStream(lambda: self._cancel(stream_id, request))
        ref = self.describe(request.payload)
        head = Invoke(
            request.id.bytes,
            request.tenant_id,
            request.version_id,
            request.attempt,
            request.reply,
            ref,
            request.start_us,
            request.timeout_us,
            request.priority,
            request.keep,
        )
        try:
            self.send_with(Kind.OPEN, stream_id, head, ref, request.payload)
        except (ConnectionLost, ProtocolError) as error:
            stream.finish(_lost(error) if isinstance(error, ConnectionLost) else _failed(error))
            return stream
        self._streams[stream_id] = stream
        return stream

    def ping(self) -> None:
        if not self.lost:
            self.send(Kind.PING, 0)

    def silent_us(self) -> int:
        """How long the proxy has not said anything."""
        return self._now_us() - self.answered_us

    def data_received(self, data: bytes) -> None:
        self.answered_us = self._now_us()
        super().data_received(data)

    def frame_received(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == Kind.END:
            self._end(stream, body)
        elif kind == Kind.ITEM:
            self._piece(stream, body)
        elif kind == Kind.CREDIT:
            self.credit_received(stream, body)
        elif kind != Kind.PONG:
            raise ProtocolError(f"a proxy does not send frames of kind {kind}")

    def link_lost(self, error: DgsfError) -> None:
        super().link_lost(error)
        self._spoiled.clear()
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.finish(_lost(error))
        self.on_lost()

    def _end(self, stream_id: int, body: bytes) -> None:
        end, inline = split(body, _read_end)
        if self.stop_sending(stream_id):
            self.send(Kind.CANCEL, stream_id)  # refused before all of its payload was sent: no more will come
        payload, failure = None, end.failure
        if stream_id in self._spoiled:
            self._spoiled.remove(stream_id)
            failure = Failure.of(_no_room())
        elif end.payload.codec != 0:
            payload = self.receive(stream_id, end.payload, inline)
        stream = self._streams.pop(stream_id, None)
        if stream is None:
            if payload is not None:
                payload.discard()
            return
        state = end.state if failure is end.failure else "failed"
        stream.finish(CallResult(state, payload, failure, end.queue_us, end.device_us, end.cost_nano, end.device))

    def _piece(self, stream_id: int, body: bytes) -> None:
        """A piece of a result; without room for it the rest is let by, so that the END still says the cost."""
        if stream_id in self._spoiled:
            self.send(Kind.CREDIT, stream_id, encode(Credit(len(body))))
            return
        try:
            self.chunk_received(stream_id, body)
        except OSError:
            self.drop_chunks(stream_id)
            self._spoiled.add(stream_id)
            self.send(Kind.CREDIT, stream_id, encode(Credit(len(body))))

    def _cancel(self, stream_id: int, request: CallRequest) -> None:
        if stream_id in self._streams and not self.lost:
            self.stop_sending(stream_id)  # after a CANCEL nothing more of the payload comes
            self.send(Kind.CANCEL, stream_id, flags=FLAG_GIVEN_UP if request.given_up else 0)

    def send_failed(self, stream: int, head: Message, error: Exception) -> None:
        """The request's payload is not there any more: its proxy must not wait for it."""
        self.send(Kind.CANCEL, stream)

    def _now_us(self) -> int:
        return int(self._loop.time() * 1e6)


def _no_room() -> PlatformError:
    return PlatformError("the call has run, but there is no room for its result on the gateway's host", retryable=False)


def _failed(error: DgsfError) -> CallResult:
    return CallResult("failed", None, Failure.of(error))


def _lost(error: DgsfError) -> CallResult:
    return CallResult("failed", None, Failure.of(ConnectionLost(error.message)))
