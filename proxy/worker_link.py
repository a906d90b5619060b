"""A proxy's connection to one worker: sends calls, receives their ends in order, keeps the slot's clock.

It owns what is in flight on this worker and nothing else; the lane decides what to send, the starter made
it, and the lane is told of every end and of the loss of the worker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from dgsf.clock import Clock
from dgsf.core.invocation import State
from dgsf.core.slotclock import SlotClock
from dgsf.errors import DgsfError, ProtocolError
from dgsf.wire import shared
from dgsf.wire.chunks import ChunkFile, CreditGate, read_credit, send_chunks
from dgsf.wire.frames import Kind
from dgsf.wire.link import Link
from dgsf.wire.messages import Carrier, Load, Loaded, Ref, Run, RunEnd, join, reader, split
from dgsf.wire.ports import Payload
from dgsf.wire.shared import SharedArea
from proxy.call import ActiveCall
from proxy.echo import Echo
from proxy.post import Post
from proxy.sessions.owner import OpenSession

_read_end, _read_loaded = reader(RunEnd), reader(Loaded)


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes that a link keeps to."""

    inline_bytes: int
    max_result_bytes: int


class LinkOwner(Protocol):
    """Who is told; a lane."""

    def calls_ended(self, link: WorkerLink, ended: list[tuple[ActiveCall, RunEnd, Payload | None, int]]) -> None: ...

    def worker_lost(self, link: WorkerLink, error: DgsfError) -> None: ...


class WorkerLink(Link):
    """One warm worker."""

    def __init__(self, post: Post, owner: LinkOwner, clock: Clock, area: SharedArea, limits: Limits) -> None:
        super().__init__()
        self.post = post
        self.inflight: deque[tuple[int, ActiveCall]] = deque()
        self.head_since_us = 0
        self.idle_since_us = clock.now_us()
        self.stopping_since_us = 0  # when the head was asked to stop
        self.killing: ActiveCall | None = None  # the call for whose sake its kill has been ordered
        self.cut = False  # closed by us while it was running: what it had answered may not have been read
        self.leaving = False  # given back by us: its end is no surprise
        self.session: OpenSession | None = None  # of a function whose device is remote
        self.spent = False  # it served its last call and is to be given back
        self._owner = owner
        self._clock = clock
        self._area = area
        self._limits = limits
        self._echo: Echo | None = None
        self._slot_clock = SlotClock()
        self._looked_us = 0
        self._next_stream = 1
        self._ends: list[tuple[ActiveCall, RunEnd, Payload | None]] = []
        self._gates: dict[int, CreditGate] = {}
        self._files: dict[int, ChunkFile] = {}
        self._senders: set[asyncio.Task[None]] = set()
        self._loaded: asyncio.Future[Loaded] = self._loop.create_future()

    @property
    def available(self) -> bool:
        """Whether it may be given calls: it is not being stopped, killed or closed, and its session lives."""
        return not (self.stopping_since_us or self.killing or self.lost or self.worn_out)

    @property
    def worn_out(self) -> bool:
        """Whether it is of no more use although its process lives."""
        return self.session is not None and (self.spent or self.session.ended)

    @property
    def may_echo(self) -> bool:
        """Whether it has nothing to do, so that a PING stands in no call's way."""
        return not self.inflight and self.available and not self.leaving and (self._echo is None or self._echo.over)

    # --- sending
    def measure(self, clock: Clock, done: Callable[[int], None]) -> None:
        """`done` hears the least round trip of a few, in µs, unless the link is lost before."""
        self._echo = Echo(clock, lambda: self.send(Kind.PING, 0), done)
        self._echo.start()

    async def echo(self, timeout: float) -> int:
        """The least round trip of a few, in µs; for a worker that does nothing else yet."""
        took: asyncio.Future[int] = self._loop.create_future()
        self.measure(self._clock, took.set_result)
        async with asyncio.timeout(timeout):
            await asyncio.wait((took, self._loaded), return_when=asyncio.FIRST_COMPLETED)
        if not took.done():
            await self._loaded  # the connection is lost
            raise ProtocolError("a worker answered LOAD before it was asked")
        return took.result()

    async def load(self, version_id: int, code: bytes, timeout: float, device_alias: str = "") -> Loaded:
        """Send the function's code, once, and wait until the worker has it."""
        stream = self._take_stream()
        ref, inline = self._carry(stream, Payload(0, code, "", len(code)))
        head = Load(version_id, ref, self._limits.inline_bytes, self._limits.max_result_bytes, device_alias)
        self.send(Kind.LOAD, stream, join(head, inline))
        if ref.carrier == Carrier.chunks:
            self._send_later(stream, Payload(0, code, "", len(code)))
        async with asyncio.timeout(timeout):
            loaded = await self._loaded  # fails with the connection
        self._gates.pop(stream, None)
        self.idle_since_us = self._clock.now_us()
        return loaded

    def dispatch(self, call: ActiveCall, now_us: int) -> None:
        """Send a call; it runs when those before it have ended."""
        request = call.request
        stream = self._take_stream()
        ref, inline = self._carry(stream, request.payload)
        head = Run(request.id.bytes, call.life.attempt, self.post.lease.epoch, request.reply, ref)
        self.send(Kind.OPEN, stream, join(head, inline))
        if ref.carrier == Carrier.chunks:
            self._send_later(stream, request.payload)
        call.life.to(State.running)
        call.waited(now_us)
        call.device_id = self.post.device.id
        call.device_name = self.post.device.name
        if not self.inflight:
            self.head_since_us = now_us
        self.inflight.append((stream, call))
        if self.session is not None:
            self.session.starts_within(call.start_left_s(now_us))
        self._slot_clock.busy(now_us)

    def stop_clock(self, now_us: int) -> int:
        """The time of the head of a worker that is gone."""
        return self._slot_clock.ended(now_us, [1], False)[0]

    def overdue(self, call: ActiveCall, now_us: int) -> bool:
        """Whether the head has run for too long; while its session waits for a device its time stands still."""
        if self.session is not None and self.session.waiting:
            self.head_since_us += now_us - max(self._looked_us, self.head_since_us)
        self._looked_us = now_us
        return now_us - self.head_since_us > call.timeout_us

    def bill(self, call: ActiveCall, slot_us: int) -> None:
        """Near: the slot's time at its price. With a session: what that used; the host's time is free."""
        if self.session is None:
            call.billed_us += slot_us
            call.price = self.post.device.price_nano_per_us
            return
        used = self.session.take_usage()
        call.billed_us += used.device_us
        call.session_nano += used.cost_nano
        if used.device_id is not None:
            call.device_id, call.device_name = used.device_id, used.device_name

    def _take_stream(self) -> int:
        stream = self._next_stream
        self._next_stream = stream + 1 if stream < 0xFFFFFFFE else 1
        return stream

    def _carry(self, stream: int, payload: Payload) -> tuple[Ref, bytes]:
        if not payload.path and payload.size <= self._limits.inline_bytes:
            return Ref(payload.codec, Carrier.inline, payload.size), payload.data
        if payload.path and self.post.sharing:
            name = shared.lend(payload.path, self.post.shared_dir)
            return Ref(payload.codec, Carrier.shared, payload.size, name), b""
        self._gates[stream] = CreditGate()
        return Ref(payload.codec, Carrier.chunks, payload.size), b""

    def _send_later(self, stream: int, payload: Payload) -> None:
        task = asyncio.create_task(send_chunks(self, stream, payload, self._gates[stream]))
        self._senders.add(task)
        task.add_done_callback(self._senders.discard)

    def close(self, error: DgsfError | None = None) -> None:
        self.cut = self.cut or not self.lost
        super().close(error)

    # --- receiving
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._ends:
            self._tell_ends()

    def frame_received(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == Kind.END:
            self._end(stream, body)
        elif kind == Kind.ITEM:
            self._item(stream, body)
        elif kind == Kind.CREDIT and stream in self._gates:
            self._gates[stream].give(read_credit(body).size)
        elif kind == Kind.PONG and self._echo is not None and not self._echo.over:
            self._pong(self._echo)
        elif kind == Kind.LOADED and not self._loaded.done():
            self._loaded.set_result(_read_loaded(body))
        elif kind != Kind.CREDIT:
            raise ProtocolError(f"a worker does not send frames of kind {kind}")

    def _pong(self, echo: Echo) -> None:
        if self.inflight:
            echo.stop()  # a further one would wait for the call, and tell nothing of the way
        echo.pong()

    def _end(self, stream: int, body: bytes) -> None:
        if not self.inflight or self.inflight[0][0] != stream:
            raise ProtocolError("the end of a call that is not the one that runs")
        end, inline = split(body, _read_end)
        payload = None if end.failure else self._result(stream, end.payload, inline)
        self._ends.append((self.inflight.popleft()[1], end, payload))
        self._gates.pop(stream, None)

    def _result(self, stream: int, ref: Ref, inline: bytes) -> Payload:
        if ref.carrier == Carrier.inline:
            return Payload(ref.codec, inline, "", len(inline))
        if ref.carrier == Carrier.chunks and stream in self._files:
            return self._files.pop(stream).payload(ref.codec, ref.size)
        path = self._area.take(self.post.shared_dir, ref.name, ref.size, self._limits.max_result_bytes)
        return Payload(ref.codec, b"", path, ref.size)

    def _item(self, stream: int, body: bytes) -> None:
        if not self.inflight or self.inflight[0][0] != stream:
            raise ProtocolError("an item of a call that is not the one that runs")
        if stream not in self._files:
            self._files[stream] = ChunkFile(self._area, self._limits.max_result_bytes)
        self._files[stream].write(self, stream, body)

    def _tell_ends(self) -> None:
        ends, self._ends = self._ends, []
        now = self._clock.now_us()
        shares = self._slot_clock.ended(now, [end.run_us for _, end, _ in ends], bool(self.inflight))
        self.head_since_us = self.idle_since_us = now
        self.spent = bool(self.stopping_since_us)  # a session that was interrupted may have work left in it
        self.stopping_since_us = 0
        self._owner.calls_ended(
            self, [(call, end, payload, us) for (call, end, payload), us in zip(ends, shares, strict=True)]
        )

    def link_lost(self, error: DgsfError) -> None:
        if not self._loaded.done():
            self._loaded.set_exception(error)
            self._loaded.exception()  # looked at, in case nobody waits any more
        for file in self._files.values():
            file.drop()
        self._files.clear()
        for task in self._senders:
            task.cancel()
        if self._ends:
            self._tell_ends()
        self._owner.worker_lost(self, error)
