"""What the leader does so that devices become free: it asks sessions to move together, one at a time.

Leases and sessions of all proxies are rows, so the leader sees the whole pool; which move is worth it is decided in
`core.consolidation`.  It is ordered as an operator orders one: by the wish in the session's row, which the session's
proxy carries out and answers.  A session that was asked, whatever came of it, is left alone for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Iterable
from uuid import UUID

from dgsf.clock import Clock
from dgsf.core.consolidation import HeldSlot, next_move
from dgsf.core.placement.consolidate import Budget, MoveRules
from dgsf.errors import StoreUnavailable
from dgsf.store.devices import DeviceStore
from dgsf.store.leases import LeaseStore
from dgsf.store.rows import LeaseRow
from dgsf.store.sessions import SessionSeat, SessionStore
from dgsf.store.views import pool_views

log = logging.getLogger(__name__)
LOOK_SECONDS = 10.0
REST_SECONDS = 600.0  # after it was asked, a session is not asked again for so long


class Consolidating:
    """Looks at all sessions; keeps only what would be asked too often without it."""

    def __init__(
        self, devices: DeviceStore, leases: LeaseStore, sessions: SessionStore, clock: Clock, rules: MoveRules
    ) -> None:
        self._devices = devices
        self._leases = leases
        self._sessions = sessions
        self._clock = clock
        self._rules = rules
        self._budget = Budget(rules.per_hour)
        self._budget.spend(self._budget.left(self._now_s()))  # a new leader has saved up nothing
        self._resting: dict[UUID, float] = {}  # until when
        self._asked: tuple[UUID, str] | None = None  # the last session, and its new device

    async def look(self) -> None:
        """Order the next move, if there is one that is worth it and none is under way."""
        seats = await self._sessions.seats()
        if any(seat.on_the_move for seat in seats):
            return
        self._tell_outcome(seats)
        now_s = self._now_s()
        self._resting = {session: until for session, until in self._resting.items() if until > now_s}
        most = self._budget.left(now_s)
        if most >= 1:
            await self._order(seats, most, now_s)

    async def _order(self, seats: list[SessionSeat], most: int, now_s: float) -> None:
        rows, leases = await asyncio.gather(self._devices.list_devices(), self._leases.list_leases())
        devices = [row for row in rows if not row.is_host]
        held = held_slots(leases, (seat for seat in seats if seat.attached and seat.id not in self._resting))
        order = next_move(pool_views(devices, leases), held, self._rules, most)
        if order is None:
            return
        to = next(row.name for row in devices if row.id == order.to)
        self._budget.spend(1)
        self._resting[order.session] = now_s + REST_SECONDS
        if await self._sessions.ask_move(order.session, to):
            self._asked = (order.session, to)
            log.info("session_asked_to_move", extra={"session": str(order.session), "to": to})

    def _tell_outcome(self, seats: Iterable[SessionSeat]) -> None:
        if self._asked is None:
            return
        (asked, to), self._asked = self._asked, None
        seat = next((seat for seat in seats if seat.id == asked), None)
        if seat is not None and seat.move_error is not None:
            facts = {"session": str(asked), "to": to, "error": seat.move_error}
            log.warning("session_not_consolidated", extra=facts)

    def _now_s(self) -> float:
        return self._clock.now_us() / 1e6


def held_slots(leases: Iterable[LeaseRow], movable: Iterable[SessionSeat]) -> list[HeldSlot]:
    """Every lease, with the session that holds it if that may move.

    A lease does not name its session: those of one tenant and function on one device that are equally large are
    equal, so whichever is taken for which makes no difference.
    """
    seated: dict[tuple[int | None, ...], list[SessionSeat]] = defaultdict(list)
    for seat in movable:
        seated[seat.device_id, seat.tenant_id, seat.version_id, seat.memory_bytes].append(seat)
    found = []
    for lease in leases:
        alike = seated[lease.device_id, lease.tenant_id, lease.version_id, lease.memory_bytes]
        if alike:
            seat = alike.pop()
            found.append(HeldSlot(lease.device_id, lease.memory_bytes, seat.age_s, seat.id))
        else:
            found.append(HeldSlot(lease.device_id, lease.memory_bytes, lease.held_s))
    return found


async def consolidate_forever(consolidating: Consolidating) -> None:
    """For as long as we lead."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        with contextlib.suppress(StoreUnavailable):
            await consolidating.look()
