"""What both ends of a gateway-proxy connection share: carrying payloads of many streams over one link.

On one host a large payload is handed over as a file in shared memory, by its path; between hosts it goes
in chunks with credit.  Small ones travel inside the frame.
"""

from __future__ import annotations

import asyncio
import contextlib

from dgsf.errors import ConnectionLost, DgsfError, ProtocolError
from dgsf.wire.chunks import ChunkFile, CreditGate, read_credit, send_chunks
from dgsf.wire.frames import Kind
from dgsf.wire.link import Link
from dgsf.wire.messages import Carrier, Message, Ref, join
from dgsf.wire.ports import Payload
from dgsf.wire.shared import SharedArea


class PayloadLink(Link):
    """A link whose heads carry payloads."""

    def __init__(self, area: SharedArea, inline_bytes: int, limit: int, sharing: bool) -> None:
        super().__init__()
        self._area = area
        self._inline_bytes = inline_bytes
        self._limit = limit
        self._sharing = sharing
        self._gates: dict[int, CreditGate] = {}
        self._files: dict[int, ChunkFile] = {}
        self._senders: dict[int, asyncio.Task[None]] = {}

    def describe(self, payload: Payload | None) -> Ref:
        """How a payload will travel on this link."""
        if payload is None:
            return Ref()
        if not payload.path and payload.size <= self._inline_bytes:
            return Ref(payload.codec, Carrier.inline, payload.size)
        if payload.path and self._sharing:
            return Ref(payload.codec, Carrier.shared, payload.size, payload.path)
        return Ref(payload.codec, Carrier.chunks, payload.size)

    def send_with(self, kind: int, stream: int, head: Message, ref: Ref, payload: Payload | None) -> None:
        """A head and its payload; an END's chunks go before it, an OPEN's after it."""
        if ref.carrier != Carrier.chunks or payload is None:
            inline = payload.data if payload is not None and ref.carrier == Carrier.inline else b""
            self.send(kind, stream, join(head, inline))
            return
        if kind == Kind.OPEN:
            self.send(kind, stream, join(head))
        self._gates[stream] = CreditGate()
        task = asyncio.create_task(self._stream_out(kind, stream, head, payload))
        self._senders[stream] = task
        task.add_done_callback(lambda _: self._sent(kind, stream, payload))

    async def _stream_out(self, kind: int, stream: int, head: Message, payload: Payload) -> None:
        with contextlib.suppress(ConnectionLost):
            try:
                await send_chunks(self, stream, payload, self._gates[stream])
                if kind == Kind.END:
                    self.send(kind, stream, join(head))
            except (OSError, ProtocolError) as error:
                self.send_failed(stream, head, error)

    def _sent(self, kind: int, stream: int, payload: Payload) -> None:
        """However it ended, even before it began: an END's payload is nobody's any more."""
        self._gates.pop(stream, None)
        self._senders.pop(stream, None)
        if kind == Kind.END:
            payload.discard()

    def send_failed(self, stream: int, head: Message, error: Exception) -> None:
        """For subclasses: a payload could not be read or a head not be sent; end this stream and no other."""
        raise NotImplementedError

    def stop_sending(self, stream: int) -> bool:
        """Send no more of this stream's payload; whether there was more to send."""
        task = self._senders.get(stream)
        return task is not None and task.cancel()

    def receive(self, stream: int, ref: Ref, inline: bytes) -> Payload:
        """The payload of a head that has arrived with all its chunks."""
        if ref.carrier == Carrier.inline:
            return Payload(ref.codec, inline, "", len(inline))
        if ref.carrier == Carrier.chunks:
            if stream not in self._files:
                raise ProtocolError("a payload of which nothing has arrived")
            return self._files.pop(stream).payload(ref.codec, ref.size)
        if not self._sharing:
            raise ProtocolError("shared memory of another host")
        return Payload(ref.codec, b"", ref.name, ref.size)

    def chunk_received(self, stream: int, body: bytes) -> int:
        """Put a piece away; returns how many bytes of this stream have arrived. OSError if there is no room."""
        if stream not in self._files:
            self._files[stream] = ChunkFile(self._area, self._limit)
        self._files[stream].write(self, stream, body)
        return self._files[stream].size

    def drop_chunks(self, stream: int) -> int:
        """Forget what has arrived of a payload; returns how many bytes that were."""
        file = self._files.pop(stream, None)
        if file is None:
            return 0
        file.drop()
        return file.size

    def credit_received(self, stream: int, body: bytes) -> None:
        if (gate := self._gates.get(stream)) is not None:
            gate.give(read_credit(body).size)

    def link_lost(self, error: DgsfError) -> None:
        for file in self._files.values():
            file.drop()
        self._files.clear()
        for task in list(self._senders.values()):
            task.cancel()
