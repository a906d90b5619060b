"""The question that production asks, again and again, over a pool that is kept between two questions.

Views of the pool come in whole; what differs from those of the last question is applied to the kept pool, so scores
of everything else stay good.  The answer is that of a pool made anew from the same views.  A device that is new or
gone, or has become another, makes the pool anew; who wants only some of the devices shows all and says which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import TypeVar

import numpy as np

from dgsf.core.placement.model import DeviceView, NodeView, Placement, Refusal, Request
from dgsf.core.placement.placer import Placer
from dgsf.core.placement.policy import Policy
from dgsf.core.placement.pool import Bools, Part, Pool
from dgsf.core.placement.registry import FreshPoolChooser

BLOCK = 128  # views that are compared at once
View = TypeVar("View", DeviceView, NodeView)
Change = tuple[DeviceView, DeviceView]  # before, now


class KeptPoolChooser(FreshPoolChooser):
    """Answers requests from views of the pool as it is now, by one policy that goes on learning."""

    _kept: Kept | None = None
    _told_busy = False  # whether it was told apart from the views until when devices are in use

    def place(
        self,
        request: Request,
        devices: Sequence[DeviceView],
        nodes: Sequence[NodeView] = (),
        now_s: float = 0.0,
        busy_s: Mapping[int, float] | None = None,
        among: Bools | None = None,
    ) -> Placement | Refusal:
        """Where the request goes in a pool that looks like this now; `among`: which of the devices will do."""
        kept = self._kept if self._told_busy == (busy_s is not None) else None
        self._told_busy = busy_s is not None
        if kept is None or not kept.follow(devices, nodes):
            kept = self._kept = Kept(devices, nodes, self.policy, self._random)
            self.policy.look_at(kept.pool)
        if busy_s is not None and self.policy.looks_at_ends(request):  # others do not look at it
            kept.pool.expect_all(busy_s)
        return kept.place(request, now_s, among)

    def _view_of(self, number: int, devices: Sequence[DeviceView]) -> DeviceView:
        assert self._kept is not None
        return self._kept.views[number]


class Kept:
    """A pool, its placer, and the views that they stand for."""

    def __init__(
        self, devices: Sequence[DeviceView], nodes: Sequence[NodeView], policy: Policy, random: Random
    ) -> None:
        ordered = sorted(devices, key=lambda device: device.id)
        self.pool = Pool.of(ordered, nodes)
        self.views = {device.id: device for device in ordered}
        self._placer = Placer(self.pool, policy, random)
        self._given = _blocks(devices)
        self._places = self.pool.places(device.id for device in devices)
        self._among: Bools = np.zeros(len(devices), dtype=np.bool_)  # the part that was asked about last
        self._part = self.pool.part(self._places[self._among])
        self._given_nodes = _blocks(nodes)
        self._nodes = {node.name: node for node in nodes}
        self._rows: dict[str, list[int]] = {}
        for row, name in enumerate(self.pool.nodes):
            self._rows.setdefault(name, []).append(row)

    def place(self, request: Request, now_s: float, among: Bools | None) -> Placement | Refusal:
        self.pool.now = now_s
        return self._placer.place(request, None if among is None else self._part_of(among))

    def _part_of(self, among: Bools) -> Part:
        """Most sessions say the same, by the same array."""
        if among is not self._among:
            self._among, self._part = among, self.pool.part(self._places[among])
        return self._part

    def follow(self, devices: Sequence[DeviceView], nodes: Sequence[NodeView]) -> bool:
        """Becomes the pool of these views; False: it cannot, make another."""
        given = _blocks(devices)
        changes = _differing(self._given, given)
        if changes is None or not all(_same_device(before, now) for before, now in changes):
            return False
        new_nodes = self._new_nodes(nodes)
        if new_nodes is None:
            return False
        self._given = given
        if changes:
            self.pool.renew(changes)
            self.views.update((now.id, now) for _, now in changes)
        for node in new_nodes:
            self.pool.renew_node(self._rows[node.name], node)
            self._nodes[node.name] = node
        return True

    def _new_nodes(self, nodes: Sequence[NodeView]) -> list[NodeView] | None:
        given = _blocks(nodes)
        differing = _differing(self._given_nodes, given)
        if differing is None or any(_size(old) != _size(new) for old, new in differing):
            return self._nodes_by_name(nodes)
        self._given_nodes = given
        return [new for _, new in differing]

    def _nodes_by_name(self, nodes: Sequence[NodeView]) -> list[NodeView] | None:
        given = {node.name: node for node in nodes}
        if not given.keys() <= self._rows.keys():
            return None
        before, now = ({name: views.get(name, NodeView(name)) for name in self._rows} for views in (self._nodes, given))
        if any(_size(before[name]) != _size(now[name]) for name in now):
            return None
        self._given_nodes = _blocks(nodes)
        return [node for name, node in now.items() if before[name] != node]


def _blocks(views: Sequence[View]) -> list[Sequence[View]]:
    return [views[at : at + BLOCK] for at in range(0, len(views), BLOCK)]


def _differing(before: list[Sequence[View]], now: list[Sequence[View]]) -> list[tuple[View, View]] | None:
    """Those at the same place that differ; None: there are more or fewer.

    Most are the very same, which lists find out by themselves and quickly.
    """
    if sum(map(len, before)) != sum(map(len, now)):
        return None
    found: list[tuple[View, View]] = []
    for old, new in zip(before, now, strict=True):
        if old != new:
            found += [(one, other) for one, other in zip(old, new, strict=True) if one is not other and one != other]
    return found


def _size(node: NodeView) -> tuple[str, int, int]:
    """What of a node the pool is made by."""
    return (node.name, node.cpu_milli, node.memory_bytes)


def _same_device(before: DeviceView, now: DeviceView) -> bool:
    """Whether only what is left of it, or on it, has changed."""
    return _make(before) == _make(now)


def _make(view: DeviceView) -> tuple[object, ...]:
    figures = (view.slots, view.speed, view.price, view.memory_bytes, view.node_cpu_milli)
    return (view.id, view.node, view.type, view.kind, *figures)
