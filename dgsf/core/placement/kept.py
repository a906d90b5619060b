"""The question that production asks, again and again, over a pool that is kept between two questions.

Views of the pool come in whole; what differs from those of the last question is applied to the kept pool, so scores
of everything else stay good.  The answer is that of a pool made anew from the same views.  A device that is not among
the views any more counts as one that is out of order; one that is new, or has become another, makes the pool anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

from dgsf.core.placement.model import DeviceView, NodeView, Placement, Refusal, Request
from dgsf.core.placement.need import Need
from dgsf.core.placement.placer import Placer
from dgsf.core.placement.policy import Policy
from dgsf.core.placement.pool import Pool
from dgsf.core.placement.refusing import refusal
from dgsf.core.placement.registry import FreshPoolChooser

BLOCK = 128  # views that are compared at once
View = TypeVar("View", DeviceView, NodeView)
Change = tuple[DeviceView, DeviceView]  # before, now


class KeptPoolChooser(FreshPoolChooser):
    """Answers requests from views of the pool as it is now, by one policy that goes on learning."""

    _kept: Kept | None = None
    _told_busy = False  # whether it was told apart from the views until when devices are in use
    _elsewhere = False  # whether the policy has looked at another pool since

    def place(
        self,
        request: Request,
        devices: Sequence[DeviceView],
        nodes: Sequence[NodeView] = (),
        now_s: float = 0.0,
        busy_s: Mapping[int, float] | None = None,
    ) -> Placement | Refusal:
        """Where the request goes in a pool that looks like this now."""
        kept = self._kept if self._told_busy == (busy_s is not None) else None
        self._told_busy = busy_s is not None
        if kept is not None and kept.has_little_of(devices):  # such as one device that will do
            self._elsewhere = True
            return super().place(request, devices, nodes, now_s, busy_s)
        if kept is None or not kept.follow(devices, nodes):
            kept = self._kept = Kept(devices, nodes, self.policy, self._random)
            self._elsewhere = True
        if self._elsewhere:
            self.policy.look_at(kept.pool)
            self._elsewhere = False
        if busy_s is not None and self.policy.decides(request):  # others do not look at it
            kept.pool.expect_all(busy_s)
        return kept.place(request, devices, nodes, now_s)

    def _view_of(self, number: int, devices: Sequence[DeviceView]) -> DeviceView:
        if self._kept is not None and not self._elsewhere:
            return self._kept.views[number]
        return super()._view_of(number, devices)


class Kept:
    """A pool, its placer, and the views that they stand for."""

    def __init__(
        self, devices: Sequence[DeviceView], nodes: Sequence[NodeView], policy: Policy, random: Random
    ) -> None:
        ordered = sorted(devices, key=lambda device: device.id)
        self.pool = Pool.of(ordered, nodes)
        self.views = {device.id: device for device in ordered}
        self._placer = Placer(self.pool, policy, random)
        self._given = list(devices)
        self._given_nodes = list(nodes)
        self._gone: set[int] = set()
        self._nodes = {node.name: node for node in nodes}
        self._rows: dict[str, list[int]] = {}
        for row, name in enumerate(self.pool.nodes):
            self._rows.setdefault(name, []).append(row)

    def has_little_of(self, devices: Sequence[DeviceView]) -> bool:
        """Whether these are a small part of what is kept."""
        return 2 * len(devices) < len(self.views) and all(device.id in self.views for device in devices)

    def place(
        self, request: Request, devices: Sequence[DeviceView], nodes: Sequence[NodeView], now_s: float
    ) -> Placement | Refusal:
        """The answer; a reason why not is about what is there, without those that are gone."""
        self.pool.now = now_s
        answer = self._placer.place(request)
        if isinstance(answer, Refusal) and self._gone:
            there = Pool.of(devices, nodes)
            return refusal(there, Need.of(request, there))
        return answer

    def follow(self, devices: Sequence[DeviceView], nodes: Sequence[NodeView]) -> bool:
        """Becomes the pool of these views; False: it cannot, make another."""
        changes = self._changes(devices)
        new_nodes = self._new_nodes(nodes)
        if changes is None or new_nodes is None:
            return False
        if changes:
            self.pool.renew(changes)
            self.views.update((now.id, now) for _, now in changes)
        for node in new_nodes:
            self.pool.renew_node(self._rows[node.name], node)
            self._nodes[node.name] = node
        return True

    # --- devices
    def _changes(self, devices: Sequence[DeviceView]) -> list[Change] | None:
        devices = list(devices)
        differing = _differing(self._given, devices)
        if len(devices) == len(self._given) and all(old.id == new.id for old, new in differing):
            changes, gone = differing, self._gone
        else:
            found = self._set_apart(devices)
            if found is None:
                return None
            changes, gone = found
        if not all(_same_device(before, now) for before, now in changes):
            return None
        self._given, self._gone = devices, gone
        return changes

    def _set_apart(self, devices: Sequence[DeviceView]) -> tuple[list[Change], set[int]] | None:
        """The same for views of which some are new, gone, or at another place; None: some are new."""
        given = {device.id: device for device in devices}
        if not given.keys() <= self.views.keys() or len(given) < len(devices):
            return None
        gone = self.views.keys() - given.keys()
        shown = [*given.values(), *(replace(self.views[each], healthy=False) for each in gone)]
        pairs = ((self.views[view.id], view) for view in shown)
        return [(before, now) for before, now in pairs if before is not now and before != now], gone

    # --- nodes
    def _new_nodes(self, nodes: Sequence[NodeView]) -> list[NodeView] | None:
        nodes = list(nodes)
        differing = _differing(self._given_nodes, nodes)
        if len(nodes) != len(self._given_nodes) or any(old.name != new.name for old, new in differing):
            return self._nodes_by_name(nodes)
        self._given_nodes = nodes
        return [new for _, new in differing]

    def _nodes_by_name(self, nodes: Sequence[NodeView]) -> list[NodeView] | None:
        given = {node.name: node for node in nodes}
        if not given.keys() <= self._rows.keys():
            return None
        self._given_nodes = list(nodes)
        silent = (NodeView(name) for name in self._nodes.keys() - given.keys())
        return [node for node in (*given.values(), *silent) if self._nodes.get(node.name) != node]


def _differing(before: Sequence[View], now: Sequence[View]) -> list[tuple[View, View]]:
    """Those at the same place that differ.  Most are the very same, which lists find out by themselves and quickly."""
    found: list[tuple[View, View]] = []
    for at in range(0, min(len(before), len(now)), BLOCK):
        old, new = before[at : at + BLOCK], now[at : at + BLOCK]
        if old != new:
            found += [(one, other) for one, other in zip(old, new, strict=False) if one is not other and one != other]
    return found


def _same_device(before: DeviceView, now: DeviceView) -> bool:
    """Whether only what is left of it, or on it, has changed."""
    return _make(before) == _make(now)


def _make(view: DeviceView) -> tuple[object, ...]:
    figures = (view.slots, view.speed, view.price, view.memory_bytes, view.node_cpu_milli)
    return (view.node, view.type, view.kind, *figures)
