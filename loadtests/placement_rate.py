"""How fast requests are placed: in a pool of nodes with one GPU each, and as production asks.

A proxy shows a `KeptPoolChooser` the whole pool for every request.

Functions differ in what they accept and in the processors that they keep, half of them have a known duration, and each
was asked for once before.  Between two requests the device that was chosen has a slot less and its node fewer
processors, and now and then one of the oldest leases ends.  Devices that hold leases have their functions' weights and
an expected end.  In the mixed load, every other request is a session's, which never goes to a function host, and
every tenth may only go to one device.  Reading the pool from the database, and making views of it, is no part of it.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace

from dgsf.core.devices import HOST
from dgsf.core.placement import DeviceView, KeptPoolChooser, NodeView, Request
from dgsf.sim.openb import OpenbNode
from proxy.placing import Outlook
from proxy.sight import Sorts

GIB = 1024**3
SLOTS = 4
FUNCTIONS = 200
FULL = 0.7  # of all slots, from then on a lease ends for each that is taken
TYPES = ("any", "any", "any", "G2", "T4")  # of functions in turn; the types that openb has most of
CPU_MILLI = (0, 1000, 2000, 4000)


class _Shown:
    """The views that a proxy would show."""

    def __init__(self, nodes: list[OpenbNode], copies: int, *, hosts: bool = False) -> None:
        named = [(f"{node.name}/{copy}", node) for copy in range(copies) for node in nodes if node.gpus]
        places = [(name, node) for name, node in named for _ in range(node.gpus)]
        self.views = [_idle(number, name, node) for number, (name, node) in enumerate(places)]
        self.nodes = [NodeView(name, node.cpu_milli) for name, node in named]
        if hosts:  # one on each node
            self.views += [_host(len(places) + number, name) for number, (name, _) in enumerate(named)]
        self.sorts = Sorts(self.views)
        self.busy_s = dict.fromkeys(range(len(places)), 30.0)  # a pool in use: every device is expected to end
        self._at = {name: place for place, (name, _) in enumerate(named)}
        self._leases: deque[tuple[int, Request]] = deque()
        self._most = FULL * SLOTS * len(places)

    def outlook(self) -> Outlook:
        return Outlook(self.views, {}, self.nodes, self.busy_s, sorts=self.sorts)

    def lease(self, device: int, request: Request, until_s: float) -> None:
        self.views, self.nodes = list(self.views), list(self.nodes)  # a proxy makes them anew
        self._take(device, request, 1)
        self.views[device] = replace(self.views[device], weights=self.views[device].weights | {request.weights})
        self.busy_s[device] = until_s
        self._leases.append((device, request))
        if len(self._leases) > self._most:
            self._take(*self._leases.popleft(), -1)

    def last_leased(self) -> int | None:
        return self._leases[-1][0] if self._leases else None

    def _take(self, device: int, request: Request, sign: int) -> None:
        view = self.views[device]
        free, memory = view.free_slots - sign, view.free_memory - sign * request.memory_bytes
        self.views[device] = replace(view, free_slots=free, free_memory=memory)
        if request.cpu_milli:
            at = self._at[view.node]
            node = self.nodes[at]
            self.nodes[at] = replace(node, free_cpu_milli=node.free_cpu_milli - sign * request.cpu_milli)


def as_the_proxy(nodes: list[OpenbNode], policy: str, copies: int, count: int, *, mixed: bool = False) -> float:
    """Placements per second of processor time."""
    shown, chooser = _Shown(nodes, copies, hosts=mixed), KeptPoolChooser(policy)
    for number in range(FUNCTIONS):
        _choose(chooser, _request(number), shown.outlook())
    begun = time.process_time()
    for number in range(count):
        request, outlook = _request(number), shown.outlook()
        if mixed and number % 10 == 0 and (last := shown.last_leased()) is not None:
            _choose(chooser, request, outlook.only(last))
            continue
        chosen = _choose(chooser, request, outlook.devices() if mixed and number % 2 else outlook)
        assert chosen is not None
        shown.lease(chosen.id, request, 30.0 + number % 60)
    return count / (time.process_time() - begun)


def _choose(chooser: KeptPoolChooser, request: Request, outlook: Outlook) -> DeviceView | None:
    return chooser.choose(request, outlook.views, outlook.nodes, outlook.busy_s, outlook.among)


def one_by_one(nodes: list[OpenbNode]) -> list[OpenbNode]:
    """The same GPUs, each on a node of its own."""
    return [
        replace(node, name=f"{node.name}/{gpu}", cpu_milli=node.cpu_milli // node.gpus,
                memory_mib=node.memory_mib // node.gpus, gpus=1)
        for node in nodes for gpu in range(node.gpus)
    ]  # fmt: skip


def _host(number: int, node: str) -> DeviceView:
    return DeviceView(number, HOST, HOST, True, 64, 64 * GIB, 64, 64 * GIB, node=node)


def _idle(number: int, name: str, node: OpenbNode) -> DeviceView:
    return DeviceView(
        number, node.model, "cuda", True, SLOTS, 16 * GIB, SLOTS, 16 * GIB, node=name, node_cpu_milli=node.cpu_milli
    )


def _request(number: int) -> Request:
    function = number * 7919 % FUNCTIONS
    return Request(
        (TYPES[function // 2 % len(TYPES)],),
        GIB,
        tenant="1",
        function=f"f{function}",
        cpu_milli=CPU_MILLI[function // 10 % len(CPU_MILLI)],
        duration_s=60.0 * (function % 2),
        weights=f"1/f{function}",
    )
