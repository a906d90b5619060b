"""One session: the shell around its pure life, with the guest on one side and an executor on the other.

It turns what the two links say into events and does the effects: relays frames, holds commands while there is no
device for them, keeps the meter, and passes fullness of either side on as a pause of the other.  Everything that
takes time is a task of the hub's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from dgsf.clock import Clock
from dgsf.core import session as core
from dgsf.core.devices import DUMMY
from dgsf.core.metering import Meter
from dgsf.errors import DgsfError, NoDevice, ProtocolError, SessionLost, SessionRefused, StartDeadlineMissed
from dgsf.wire.messages import Failure
from dgsf.wire.session import Began, Begin, Ended, GuestMessage, Lost, Replayed, Usage
from proxy.directory import Directory
from proxy.sessions.cutter import Cut, Piece
from proxy.sessions.device_link import DeviceLink
from proxy.sessions.guest_link import GuestLink
from proxy.sessions.losses import loss_of
from proxy.sessions.moving import Mover
from proxy.sessions.opening import Opener
from proxy.sessions.owner import SessionOwner, Used

log = logging.getLogger(__name__)
HELD_BYTES = 4 * 1024 * 1024  # commands kept for a device that is not there yet, before the guest has to wait
NOTICE_SECONDS = 0.5  # for the device server to tell how an executor ended
GOODBYE_SECONDS = 1.0  # for the last words to leave
DIALECTS = ("torch",)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all sessions of a proxy share."""

    opener: Opener
    directory: Directory
    clock: Clock
    later: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]
    changed: Callable[[Session], None]  # its state is another one
    repeated: Callable[[Session], Awaitable[int | None]]  # paid by the session that it goes on with, if that was lost


class Session:
    """A guest and, most of the time, its device."""

    def __init__(self, session_id: UUID, owner: SessionOwner, around: Surroundings) -> None:
        self.id = session_id
        self.owner = owner
        self.life = core.SessionLife()
        self.meter = Meter()
        self.guest = GuestLink(self)
        self.device: DeviceLink | None = None
        self.error: DgsfError | None = None  # why it ended
        self.over = asyncio.Event()  # ended, and its slot is free
        self.started_wall = around.clock.wall()
        self.mover: Mover | None = None
        self.dummy: bool | None = None  # whether its values are dummies; None: it has had no device yet
        self._around = around
        self._post_name = ""
        self._post_id: int | None = None
        self._failed: set[int] = set()  # devices that were lost under it
        self._start_s: float | None = None  # what the start deadline of its call leaves for the wait for a device
        self._opening: asyncio.Task[None] | None = None
        self._releasing: set[asyncio.Task[Any]] = set()
        self._held: list[Piece] = []
        self._held_bytes = 0
        self._last_command = 0
        self._taken_us = self._taken_nano = 0

    # --- OpenSession
    @property
    def ended(self) -> bool:
        return self.life.state is core.State.ended

    @property
    def failure(self) -> DgsfError | None:
        return self.error

    @property
    def waiting(self) -> bool:
        return self.life.state is core.State.begun

    @property
    def device_us(self) -> int:
        return self.meter.device_us

    @property
    def cost_nano(self) -> int:
        return self.meter.cost_nano

    @property
    def device_name(self) -> str:
        return self._post_name

    @property
    def device_id(self) -> int | None:
        return self._post_id

    def take_usage(self) -> Used:
        """What was used since the last time; whoever takes it bills it."""
        used = Used(*self.unbilled, self._post_name, self._post_id)
        self._taken_us, self._taken_nano = self.device_us, self.cost_nano
        return used

    @property
    def unbilled(self) -> tuple[int, int]:
        """What the next `take_usage` would give: device time and money."""
        return self.device_us - self._taken_us, self.cost_nano - self._taken_nano

    def starts_within(self, seconds: float | None) -> None:
        """With a device the call has all that it waits for: should it lose it, the wait is not one for the start."""
        self._start_s = None if self.life.state in core.HAS_DEVICE else seconds

    async def close(self, error: DgsfError | None = None) -> None:
        self.handle(core.Leave(error))
        await self.over.wait()

    # --- events
    def handle(self, event: core.Event) -> None:
        before = self.life.state
        for effect in self.life.handle(event):
            self._do(effect)
        if self.life.state is not before:
            facts = {"session": str(self.id), "from": before, "to": self.life.state, "device": self._post_name}
            log.info("session_state", extra=facts | {"generation": self.life.generation})
            self._around.changed(self)

    def lease_lost(self) -> None:
        """Somebody else may have the slot by now."""
        if self.device is not None:
            self._lose(self.device)

    def guest_stalled(self) -> None:
        """It does not read: its device is for others, and it may begin again when it reads on."""
        error = SessionLost("the program stopped reading, so its device was taken back")
        self.handle(core.DeviceLost(self.life.generation, error, by_guest=True))

    # --- GuestOwner
    def guest_said(self, message: GuestMessage) -> None:
        if isinstance(message, Begin):
            if message.dialect not in DIALECTS:
                known = ", ".join(DIALECTS)
                self.handle(core.Leave(SessionRefused(f"unknown dialect {message.dialect[:40]!r}; known: {known}")))
                return
            self.handle(core.Begin(message.generation))
        elif isinstance(message, Replayed):
            self.handle(core.Replayed(message.generation))
        else:
            self.handle(core.Leave())

    def guest_commands(self, cut: Cut) -> None:
        way = self.life.way
        if way is core.Way.relay and self.device is not None:
            self._last_command = cut.stream
            self.device.pass_on(cut.pieces, cut.size)
        elif way is core.Way.hold:
            self._last_command = cut.stream
            self._held += cut.pieces
            self._held_bytes += cut.size
            if self._held_bytes > HELD_BYTES:
                self.guest.pause("held")
        elif way is core.Way.refuse:
            self.handle(core.Leave(SessionRefused("the session was closed: commands before 'begin'")))

    def guest_lost(self, error: DgsfError) -> None:
        broke = isinstance(error, ProtocolError)
        self.handle(core.Leave(SessionRefused(f"the session was closed: {error.message}") if broke else None))

    def guest_full(self, full: bool) -> None:
        for link in self._links():
            link.pause("guest") if full else link.resume("guest")

    # --- DeviceOwner
    def device_answered(self, link: DeviceLink, cut: Cut) -> None:
        if link is self.device:
            self.guest.pass_on(cut.pieces, cut.size)

    def device_used(self, link: DeviceLink, usage: Usage, last_command: int) -> None:
        if link is self.device:
            self.meter.told(usage.device_us, usage.memory_bytes, last_command, usage.covered_us)
            if self.life.losses and not self.meter.replaying:
                self.handle(core.Worked())

    def device_state(self, link: DeviceLink, cut: Cut) -> None:
        if self.mover is None or not self.mover.state_received(link, cut):
            raise ProtocolError("a piece of state that nobody asked for")

    def device_lost(self, link: DeviceLink, error: DgsfError) -> None:
        if link is self.device:
            if self.mover is None or not self.mover.given:  # an executor that gave its state away may go
                self._lose(link)
        elif self.mover is not None and link is self.mover.new:
            self.mover.failed(error)

    def device_full(self, link: DeviceLink, full: bool) -> None:
        if link is self.device:
            self.guest.pause("device") if full else self.guest.resume("device")
        elif self.mover is not None:
            self.mover.new_is_full(full)

    # --- for the mover
    def rebind(self, new: DeviceLink) -> None:
        """Its state is on the new device: commands go there from now on."""
        old, self.device = self.device, None
        if old is not None:
            self._release(old)
        self._bind(new)
        self.meter.moved(new.post.device.price_nano_per_us)
        self.guest.resume("device")
        self.handle(core.Moved())

    # --- effects
    def _do(self, effect: core.Effect) -> None:
        match effect:
            case core.Open(generation):
                self._opening = self._around.later(self._open(generation))
            case core.StopOpening():
                if self._opening is not None:
                    self._opening.cancel()
            case core.TellBegan(generation):
                self._tell_began(generation)
            case core.TellLost(generation, error):
                self.guest.tell(Lost(generation, Failure.of(error)))
            case core.TellEnded(error):
                self._say_goodbye(error)
            case core.Release(by_guest):
                self._let_go(by_guest)
            case core.EndReplay():
                self.meter.replay_ended(self._last_command)
            case core.StartMove():
                pass  # its mover knows; commands are held from here on
            case core.StopMove():
                if self.mover is not None:
                    self.mover.stop()
            case core.Flush():
                self._flush()

    async def _open(self, generation: int) -> None:
        paid = await self._around.repeated(self) if generation == 1 else None
        if paid is not None:
            self.meter.resumes(paid)
        try:
            link = await self._around.opener.open(
                self.owner, self, frozenset(self._failed), seconds=self._start_s, dummy=self.dummy
            )
        except DgsfError as error:
            late = self._start_s is not None and isinstance(error, NoDevice)
            self.handle(core.NotOpened(generation, StartDeadlineMissed(error.message) if late else error))
            return
        self._start_s = None
        self._bind(link)
        self.meter.attached(link.post.device.price_nano_per_us, replay=generation > 1 or paid is not None)
        self.handle(core.Opened(generation))

    def _bind(self, link: DeviceLink) -> None:
        self.device = link
        self._post_name, self._post_id = link.post.device.name, link.post.device.id
        self.dummy = link.post.device.placed_kind == DUMMY
        if self.guest.full:
            link.pause("guest")

    def _tell_began(self, generation: int) -> None:
        assert self.device is not None
        device = self.device.post.device
        self.guest.tell(
            Began(self.id.bytes, generation, device.name, device.kind, device.type, self.owner.memory_bytes)
        )

    def _flush(self) -> None:
        held, size, self._held, self._held_bytes = self._held, self._held_bytes, [], 0
        if held and self.device is not None:
            self.device.pass_on(held, size)
        self.guest.resume("held")

    def _let_go(self, by_guest: bool) -> None:
        """The device is lost or not needed: what was held for it is of no use."""
        self._held, self._held_bytes = [], 0
        self.meter.lost(by_guest=by_guest)
        link, self.device = self.device, None
        if link is not None:
            self._release(link)
        for reason in ("device", "held"):
            self.guest.resume(reason)

    def _release(self, link: DeviceLink) -> None:
        task = self._around.later(self._around.opener.close(link, gone=link.ended))
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)

    def _say_goodbye(self, error: DgsfError | None) -> None:
        self.error = error
        self.guest.tell(Ended(None if error is None else Failure.of(error)))
        self.guest.end()
        self._around.later(self._finish())

    async def _finish(self) -> None:
        """The slot is free when the executor is reaped; a guest that does not listen is cut off."""
        try:
            if self._releasing:
                await asyncio.wait(self._releasing)
        finally:
            self.over.set()
            self._around.changed(self)
        at_once = False
        try:
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self.guest.gone.wait()
        except TimeoutError:
            at_once = True
        finally:
            self.guest.close(at_once=at_once)

    # --- losing the device
    def _lose(self, link: DeviceLink) -> None:
        generation = self.life.generation
        link.close(at_once=True)
        self._around.later(self._bury(link, generation))

    async def _bury(self, link: DeviceLink, generation: int) -> None:
        post = link.post
        try:
            async with asyncio.timeout(NOTICE_SECONDS):
                notice = await self._around.directory.exit_of(post.device, post.worker_id)
        except TimeoutError:
            notice = None
        link.ended = notice is not None
        if link is not self.device:
            return
        self._failed = {post.device.id}
        self.handle(core.DeviceLost(generation, *loss_of(notice, post.device.name)))

    def _links(self) -> list[DeviceLink]:
        return [] if self.device is None else [self.device]
