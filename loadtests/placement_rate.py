"""How fast production places: a `KeptPoolChooser` that is shown the whole pool for every request, as a proxy shows it.

Each function was asked for once before.  Between two requests the device that was chosen has a slot less, and now and
then one of the oldest leases ends.  Devices that hold leases have their functions' weights and an expected end.
Reading the pool from the database, and making views of it, is not part of it.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace

from dgsf.core.placement import DeviceView, KeptPoolChooser, NodeView, Request
from dgsf.sim.openb import OpenbNode

GIB = 1024**3
SLOTS = 4
FUNCTIONS = 200
FULL = 0.7  # of all slots, from then on a lease ends for each that is taken


def as_the_proxy(nodes: list[OpenbNode], policy: str, copies: int, count: int) -> float:
    """Placements per second of processor time, half of the functions with a known duration."""
    views, of_nodes = _pool(nodes, copies)
    at = {view.id: place for place, view in enumerate(views)}
    chooser, leases, most = KeptPoolChooser(policy), deque[int](), FULL * SLOTS * len(views)
    busy_s = {view.id: 30.0 for view in views}  # a pool in use: every device is expected to be free at some time
    for number in range(FUNCTIONS):
        chooser.choose(_request(number), views, of_nodes, busy_s)
    begun = time.process_time()
    for number in range(count):
        request = _request(number)
        chosen = chooser.choose(request, views, of_nodes, busy_s)
        assert chosen is not None
        views = list(views)  # a proxy makes them anew
        views[at[chosen.id]] = replace(_leased(chosen, 1), weights=chosen.weights | {request.weights})
        busy_s[chosen.id] = 30.0 + number % 60
        leases.append(chosen.id)
        if len(leases) > most:
            ended = at[leases.popleft()]
            views[ended] = _leased(views[ended], -1)
    return count / (time.process_time() - begun)


def _pool(nodes: list[OpenbNode], copies: int) -> tuple[list[DeviceView], list[NodeView]]:
    named = [(f"{node.name}/{copy}", node) for copy in range(copies) for node in nodes if node.gpus]
    places = [(name, node) for name, node in named for _ in range(node.gpus)]
    views = [
        DeviceView(
            number, node.model, "cuda", True, SLOTS, 16 * GIB, SLOTS, 16 * GIB, node=name, node_cpu_milli=node.cpu_milli
        )
        for number, (name, node) in enumerate(places)
    ]
    return views, [NodeView(name, node.cpu_milli) for name, node in named]


def _request(number: int) -> Request:
    function = number * 7919 % FUNCTIONS
    return Request(
        ("any",), GIB, tenant="1", function=f"f{function}", weights=f"1/f{function}", duration_s=60.0 * (function % 2)
    )


def _leased(view: DeviceView, slots: int) -> DeviceView:
    return replace(view, free_slots=view.free_slots - slots, free_memory=view.free_memory - slots * GIB)
