"""Chooses devices for workers and sessions from all that this proxy knows of them.

One place builds what placement is asked with.  Of the pool: what is free, on which node, until when each device is
expected to be in use, and which functions are or lately were there.  Of the one who wants a slot: how long it will
probably hold it, learned from its kind.  The policy decides; leasing is `proxy.seating`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress

import numpy as np

from dgsf.clock import Clock
from dgsf.core.devices import HOST
from dgsf.core.durations import Durations
from dgsf.core.placement import DeviceView, KeptPoolChooser, NodeView, Request
from dgsf.core.placement.model import Whose
from dgsf.core.placement.pool import Bools
from dgsf.core.residency import Residency
from dgsf.store.rows import DeviceRow, LeaseGrant, LeaseRow
from proxy.directory import Directory
from proxy.leased import Leased
from proxy.post import Role, Want
from proxy.sight import Held, Sight, Sorts

NOBODY = -1  # the id of no device


@dataclass(frozen=True, slots=True)
class Outlook:
    """The pool at one moment, and which of its devices will do for somebody."""

    views: list[DeviceView]  # of the whole pool: placement keeps it, and is told apart which of them will do
    rows: dict[int, DeviceRow]
    nodes: list[NodeView] = field(default_factory=list)
    busy_s: Mapping[int, float] = field(default_factory=dict)  # device: until when it is expected to be in use
    among: Bools | None = field(default=None, compare=False)  # those that will do; None: all
    sorts: Sorts | None = field(default=None, compare=False)

    @property
    def candidates(self) -> list[DeviceView]:
        """The views of those that will do."""
        return self.views if self.among is None else list(compress(self.views, self.among.tolist()))

    def only(self, device_id: int) -> Outlook:
        found = np.zeros(len(self.views), dtype=np.bool_)
        if (place := self._sorts().at.get(device_id)) is not None:
            found[place] = True
        return self._of(found)

    def without(self, ids: Collection[int]) -> Outlook:
        if not ids:
            return self
        left, at = np.ones(len(self.views), dtype=np.bool_), self._sorts().at
        left[[at[device] for device in ids if device in at]] = False
        return self._of(left)

    def devices(self, name: str = "") -> Outlook:
        """Without function hosts; the one of this name if there is a name."""
        devices = self._of(self._sorts().devices)
        if not name:
            return devices
        named = [view.id for view in devices.candidates if self.rows[view.id].name == name]
        return devices.only(named[0] if named else NOBODY)

    def with_values(self, *, dummy: bool) -> Outlook:
        """The devices that compute, or those that only seem to."""
        return self._of(self._sorts().dummies == dummy)

    def _sorts(self) -> Sorts:
        return self.sorts or Sorts(self.views)

    def _of(self, found: Bools) -> Outlook:
        return replace(self, among=found if self.among is None else self.among & found)


class Placing:
    """What one proxy has learned of its functions and devices, and the policy that uses it."""

    def __init__(self, directory: Directory, chooser: KeptPoolChooser, clock: Clock) -> None:
        self._directory = directory
        self._chooser = chooser
        self._clock = clock
        self._durations = Durations()
        self._residency = Residency()
        self._sight = Sight()
        self._held: dict[LeaseGrant, tuple[Want, float]] = {}

    async def look(self) -> Outlook:
        """Every device with what is free on it now."""
        rows, leases = await self._directory.rows_and_leases()
        return self.outlook(rows, leases)

    def outlook(self, rows: Sequence[DeviceRow], leases: Sequence[LeaseRow]) -> Outlook:
        known = self._sight.follow(rows)
        leased = Leased(self._expected)
        for lease in leases:
            leased.add(lease)
        views = self._sight.views(self._held_on(known, leased))
        nodes = self._sight.nodes(leased.cpu_by_node(known))
        return Outlook(views, known, nodes, leased.busy_s, sorts=self._sight.sorts)

    def _held_on(self, rows: Mapping[int, DeviceRow], leased: Leased) -> dict[int, Held]:
        """What leases and this proxy's memory tell of devices; of most others there is nothing to tell."""
        held, now = leased.held(), self._now_s()
        for device in self._residency.devices:
            if device in rows and (lately := self._residency.on(device, rows[device].incarnation, now)):
                here = held.get(device, Held())
                held[device] = here._replace(weights=here.weights | lately)
        return held

    def request(self, want: Want) -> Request:
        """What placement is asked for."""
        return Request(
            want.types,
            want.memory_bytes,
            tenant=str(want.tenant_id),
            function=want.function,
            cpu_milli=want.cpu_milli,
            duration_s=self._expected(want.name, want.role) or want.guess_s,
            deadline_s=want.deadline_s,
            run_s=want.run_s,
            run_on=want.run_on,
            weights=want.name,
        )

    def choose(self, request: Request, outlook: Outlook) -> DeviceView | None:
        """The device for it now, or None if none has room."""
        return self._chooser.choose(request, outlook.views, outlook.nodes, outlook.busy_s, outlook.among)

    # --- learning
    def took(self, want: Want, grant: LeaseGrant) -> None:
        """Its process runs there from now on."""
        now = self._now_s()
        self._held[grant] = (want, now)
        self._residency.was(grant.device_id, grant.device_incarnation, want.name, now)

    def gave_back(self, grant: LeaseGrant) -> None:
        """It has ended."""
        want, since = self._held.pop(grant, (None, 0.0))
        if want is not None:
            now = self._now_s()
            self._durations.saw((want.name, want.role), now - since)
            self._residency.was(grant.device_id, grant.device_incarnation, want.name, now)

    def ran(self, whose: Whose, device: DeviceRow, seconds: float) -> None:
        """A call took so long on this device; the body of a fabric function says nothing of its device."""
        if device.kind != HOST:
            self._chooser.policy.ran(whose, device.type, seconds)

    def _expected(self, name: str, role: Role | None = None) -> float:
        """A lease does not tell its role: then whichever is known."""
        keys: tuple[Hashable, ...] = ((name, role),) if role else ((name, "function"), (name, "session"))
        return max(self._durations.expected(key) for key in keys)

    def _now_s(self) -> float:
        return self._clock.now_us() / 1e6
