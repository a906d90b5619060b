"""Finds a device for a session: place it, lease a slot, and have the device server start an executor there.

Every step that fails gives back what the steps before it took.  A device that was just lost, or that cannot be
reached, is tried again only when nothing else has room.  A full pool is waited for until the session's own
deadline; then the error says what is full and what can be done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from dgsf.clock import Clock
from dgsf.core.genuine import said_of_dummies, spelled_out
from dgsf.core.placement import DeviceView, Request, why_not
from dgsf.errors import Conflict, DoesNotFit, NoDevice, PlatformError, QueueFull, StoreUnavailable
from dgsf.store.rows import DeviceRow
from proxy.lacking import what_lacks
from proxy.placing import Outlook
from proxy.post import Want
from proxy.seating import Seating
from proxy.sessions.device_link import DeviceLink, DeviceOwner
from proxy.sessions.owner import SessionOwner

log = logging.getLogger(__name__)
LOOK_SECONDS = (0.02, 0.5)  # between two looks at a full pool: first, at most
MAX_WAITING = 256  # sessions that may wait for a device on one proxy

MakeRoom = Callable[[Request], Awaitable[None]]


class Opener:
    """Gives sessions their executors, and takes them back."""

    def __init__(self, seating: Seating, clock: Clock, make_room: MakeRoom) -> None:
        self._seating = seating
        self._placing = seating.placing
        self._clock = clock
        self._make_room = make_room
        self._waiting = 0
        self._freed = asyncio.Event()

    async def open(
        self,
        owner: SessionOwner,
        links: DeviceOwner,
        avoid: frozenset[int],
        *,
        only: str = "",
        seconds: float | None = None,
        dummy: bool | None = None,
    ) -> DeviceLink:
        """An executor for this session; `avoid`: devices to try last, `only`: the one device that will do.

        `dummy`: whether its values have been dummies so far; it never goes from such a device to a real one or back.
        """
        if self._waiting >= MAX_WAITING:
            raise QueueFull(f"{MAX_WAITING} sessions wait for a device on this proxy already", retry_after=1)
        self._waiting += 1
        try:
            limit = owner.start_seconds if seconds is None else seconds
            return await self._open(owner, links, avoid, only, limit, dummy)
        finally:
            self._waiting -= 1

    async def close(self, link: DeviceLink, *, gone: bool = False) -> None:
        """End the executor and release its lease: only in that order is the slot free. `gone`: it has ended."""
        link.close(at_once=True)
        await self._seating.end(link.post, "session over", gone=gone)
        freed, self._freed = self._freed, asyncio.Event()
        freed.set()

    # --- looking
    async def _open(
        self,
        owner: SessionOwner,
        links: DeviceOwner,
        avoid: frozenset[int],
        only: str,
        seconds: float,
        dummy: bool | None,
    ) -> DeviceLink:
        types = spelled_out(owner.gpu)
        want = Want("session", owner.tenant_id, owner.version_id, owner.function, types, owner.memory_bytes)
        request = self._placing.request(want)
        deadline = self._clock.now_us() + int(seconds * 1e6)
        pause, unreachable = LOOK_SECONDS[0], set(avoid)
        while True:
            freed = self._freed
            try:
                outlook = _alike((await self._placing.look()).devices(only), dummy, only)
                link = await self._first_that_works(want, request, links, outlook, unreachable)
                if link is not None:
                    return link
                lack = what_lacks(request, outlook, only)
                await self._make_room(request)
            except StoreUnavailable as error:
                lack = error.message
            left_s = (deadline - self._clock.now_us()) / 1e6
            if left_s <= 0:
                raise NoDevice(f"no device for the session after {seconds:.3g} s: {lack}", retry_after=5)
            await _either(freed, min(pause, left_s))
            pause = min(2 * pause, LOOK_SECONDS[1])

    async def _first_that_works(
        self, want: Want, request: Request, links: DeviceOwner, outlook: Outlook, unreachable: set[int]
    ) -> DeviceLink | None:
        candidates = outlook.candidates
        reason = why_not(request, candidates) if candidates else None
        if reason is not None:
            told = said_of_dummies(reason, request.types, candidates)
            raise DoesNotFit(f"no device of the pool can ever hold this session: {told}")
        left = outlook
        while (chosen := self._choose(request, left, unreachable)) is not None:
            device = outlook.rows[chosen.id]
            try:
                return await self._attach(want, links, device)
            except (PlatformError, OSError) as error:
                if isinstance(error, StoreUnavailable):
                    raise
                log.info("session_not_attached", extra={"device": device.name, "error": str(error)})
                unreachable.add(chosen.id)
            left = left.without([chosen.id])
        return None

    def _choose(self, request: Request, outlook: Outlook, last: set[int]) -> DeviceView | None:
        """The best device with room; those in `last` only if no other has any."""
        first = self._placing.choose(request, outlook.without(last))
        return first or (self._placing.choose(request, outlook) if last else None)

    async def _attach(self, want: Want, links: DeviceOwner, device: DeviceRow) -> DeviceLink:
        grant = await self._seating.lease(want, device.id)
        if grant is None:
            raise NoDevice(f"{device.name} has no room any more")
        link = await self._seating.attach(want, device, grant, lambda post: DeviceLink(post, links))
        link.measure(self._clock, partial(self._seating.measured, device))
        return link


def _alike(outlook: Outlook, dummy: bool | None, only: str) -> Outlook:
    """The devices that compute, or those that do not, as the session's device did."""
    if dummy is None:
        return outlook
    left = outlook.with_values(dummy=dummy)
    if only and outlook.candidates and not left.candidates:
        here, there = ("dummy", "real") if dummy else ("real", "dummy")
        raise Conflict(f"the session's values are {here} and those of {only} are {there}: it cannot go on there")
    return left


async def _either(freed: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await freed.wait()
    except TimeoutError:
        pass
