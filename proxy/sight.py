"""The pool's views, kept between two looks: only devices of which something has changed are made anew.

A proxy looks at the whole pool for every worker that it starts.  Rows of devices stay the same for hours, leases of
most devices for minutes; so what a look costs follows the leases, not the devices.  Until when devices are in use
changes with every moment and is told apart from the views.  It knows no policy and reads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from dgsf.core.devices import DUMMY, HOST
from dgsf.core.placement import DeviceView, NodeView
from dgsf.core.placement.pool import Bools
from dgsf.store.rows import DeviceRow
from dgsf.store.views import node_views, view_of

_NOTHING: frozenset[str] = frozenset()
_told = attrgetter(  # all of a row that a view or the use of one depends on: not when it was heard of last
    "id", "name", "node", "kind", "type", "memory_bytes", "slots", "speed", "price_nano_per_us", "state",
    "incarnation", "host_id", "unix_path", "tcp_host", "tcp_port", "node_cpus", "placed_kind",
)  # fmt: skip


class Held(NamedTuple):
    """What is taken of a device, and the functions that are or lately were there."""

    slots: int = 0
    memory_bytes: int = 0
    weights: frozenset[str] = _NOTHING


_FREE = Held()


class Sorts:
    """Where each device is among the views, which of them are no function hosts, and which have dummy values."""

    def __init__(self, views: Sequence[DeviceView]) -> None:
        self._views = views

    @cached_property
    def at(self) -> dict[int, int]:
        return {view.id: place for place, view in enumerate(self._views)}

    @cached_property
    def devices(self) -> Bools:
        return ~self._of_kind(HOST)

    @cached_property
    def dummies(self) -> Bools:
        return self._of_kind(DUMMY)

    def _of_kind(self, kind: str) -> Bools:
        return np.array([view.kind == kind for view in self._views], dtype=np.bool_)


class Sight:
    """The views of the last look."""

    def __init__(self) -> None:
        self._given: Sequence[DeviceRow] = ()
        self.sorts = Sorts(())
        self._held: Mapping[int, Held] = {}
        self._views: list[DeviceView] = []
        self._nodes: dict[str, NodeView] = {}
        self._shown_nodes: list[NodeView] = []
        self._cpu_taken: Mapping[str, int] = {}
        self._rows: dict[int, DeviceRow] = {}

    def follow(self, rows: Sequence[DeviceRow]) -> dict[int, DeviceRow]:
        """The pool has these devices now."""
        if rows is not self._given:
            self._take_over(rows)
        return self._rows

    def views(self, held: Mapping[int, Held]) -> list[DeviceView]:
        """They look like this now, in the order of the rows."""
        before, self._held = self._held, held
        changed = [device for device in before.keys() | held.keys() if before.get(device) != held.get(device)]
        at = self.sorts.at
        places = [at[device] for device in changed if device in at]
        if places:
            self._views = views = list(self._views)
            for place in places:
                views[place] = _view(self._given[place], held)
        return self._views

    def nodes(self, cpu_taken: Mapping[str, int]) -> list[NodeView]:
        """The nodes of these devices with the processors that nobody has reserved."""
        if cpu_taken != self._cpu_taken:
            self._cpu_taken = cpu_taken
            self._shown_nodes = [
                replace(node, free_cpu_milli=node.free_cpu_milli - cpu_taken[node.name])
                if node.name in cpu_taken
                else node
                for node in self._nodes.values()
            ]
        return self._shown_nodes

    def _take_over(self, rows: Sequence[DeviceRow]) -> None:
        """Rows that were read anew: most say what they said."""
        known = {row.id: (row, view) for row, view in zip(self._given, self._views, strict=True)}
        views, same = [], len(rows) == len(self._given)
        for row in rows:
            old = known.get(row.id)
            if old is not None and _told(old[0]) == _told(row):
                views.append(old[1])
            else:
                views.append(_view(row, self._held))
                same = False
        self._given, self._views = rows, views
        self.sorts = Sorts(views)
        self._rows = {row.id: row for row in rows}
        if not same:
            self._nodes = {node.name: node for node in node_views(rows, ())}
            self._shown_nodes, self._cpu_taken = list(self._nodes.values()), {}


def _view(row: DeviceRow, held: Mapping[int, Held]) -> DeviceView:
    here = held.get(row.id, _FREE)
    view = view_of(row, here.slots, here.memory_bytes)
    return replace(view, weights=here.weights) if here.weights else view
