"""Chooses devices for workers and sessions from all that this proxy knows of them.

One place builds what placement is asked with.  Of the pool: what is free, on which node, until when each device is
expected to be in use, and which functions are or lately were there.  Of the one who wants a slot: how long it will
probably hold it, learned from its kind.  The policy decides; leasing is `proxy.seating`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from dgsf.clock import Clock
from dgsf.core.devices import DUMMY, HOST
from dgsf.core.durations import Durations, remaining
from dgsf.core.placement import Chooser, DeviceView, NodeView, Request
from dgsf.core.residency import Residency
from dgsf.store.rows import DeviceRow, LeaseGrant, LeaseRow
from dgsf.store.views import node_views, pool_views
from proxy.directory import Directory
from proxy.post import Role, Want, name_of


@dataclass(frozen=True, slots=True)
class Outlook:
    """The pool at one moment."""

    views: list[DeviceView]
    rows: dict[int, DeviceRow]
    nodes: list[NodeView] = field(default_factory=list)

    def only(self, device_id: int) -> Outlook:
        return self._of(view for view in self.views if view.id == device_id)

    def without(self, ids: Collection[int]) -> Outlook:
        """As if these were out of order: the pool that placement keeps stays the same."""
        if not ids:
            return self
        views = [replace(view, healthy=False) if view.id in ids else view for view in self.views]
        return Outlook(views, self.rows, self.nodes)

    def devices(self, name: str = "") -> Outlook:
        """Without function hosts; the one of this name if there is a name."""
        found = [view for view in self.views if view.kind != HOST]
        return self._of(view for view in found if not name or self.rows[view.id].name == name)

    def with_values(self, *, dummy: bool) -> Outlook:
        """The devices that compute, or those that only seem to."""
        return self._of(view for view in self.views if (view.kind == DUMMY) == dummy)

    def _of(self, views: Iterable[DeviceView]) -> Outlook:
        left = list(views)
        names = {view.node for view in left}
        return Outlook(left, self.rows, [node for node in self.nodes if node.name in names])


class Placing:
    """What one proxy has learned of its functions and devices, and the policy that uses it."""

    def __init__(self, directory: Directory, chooser: Chooser, clock: Clock) -> None:
        self._directory = directory
        self._chooser = chooser
        self._clock = clock
        self._durations = Durations()
        self._residency = Residency()
        self._held: dict[LeaseGrant, tuple[Want, float]] = {}

    async def look(self) -> Outlook:
        """Every device with what is free on it now."""
        rows, leases = await self._directory.rows_and_leases()
        return self.outlook(rows, leases)

    def outlook(self, rows: Sequence[DeviceRow], leases: Sequence[LeaseRow]) -> Outlook:
        busy_s: dict[int, float] = {}
        names: dict[int, set[str]] = {}
        for lease in leases:
            device, name = lease.device_id, name_of(lease.tenant_id, lease.function_name)
            left_s = remaining(self._expected(name), lease.held_s)
            busy_s[device] = max(left_s, busy_s.get(device, 0.0))
            names.setdefault(device, set()).add(name)
        now = self._now_s()
        views = [
            replace(
                view,
                busy_until_s=busy_s.get(row.id, 0.0),
                weights=self._residency.on(row.id, row.incarnation, now) | names.get(row.id, set()),
            )
            for row, view in zip(rows, pool_views(rows, leases), strict=True)
        ]
        return Outlook(views, {row.id: row for row in rows}, node_views(rows, leases))

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
            weights=want.name,
        )

    def choose(self, request: Request, outlook: Outlook) -> DeviceView | None:
        """The device for it now, or None if none has room."""
        return self._chooser.choose(request, outlook.views, outlook.nodes)

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

    def ran(self, function: str, device: DeviceRow, seconds: float) -> None:
        """A call of it took so long on this device; the body of a fabric function says nothing of its device."""
        if device.kind != HOST:
            self._chooser.policy.ran(function, device.type, seconds)

    def _expected(self, name: str, role: Role | None = None) -> float:
        """A lease does not tell its role: then whichever is known."""
        keys: tuple[Hashable, ...] = ((name, role),) if role else ((name, "function"), (name, "session"))
        return max(self._durations.expected(key) for key in keys)

    def _now_s(self) -> float:
        return self._clock.now_us() / 1e6
