"""The controller's work while it leads: device servers on every node, alive, registered, one per device.

A thin shell around core.pool: it turns nodes, heartbeats and time into events and carries out the
effects, in order per device.  It is crash-only: it keeps nothing that the database and the device servers
do not know, and a successor adopts the servers that answer as they are.  It stops at the first sign that
it does not lead any more.  No call passes through it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import TypeVar

from dgsf.clock import Clock
from dgsf.core import pool as core
from dgsf.core.devices import HOST
from dgsf.core.topology import NodeNames, Place, places
from dgsf.errors import StoreUnavailable
from dgsf.fabric.adoption import adoptable
from dgsf.fabric.cluster import Cluster, ClusterLost, ClusterSlow, Node
from dgsf.fabric.pulse import Pulse, Target
from dgsf.fabric.registration import Registered, register
from dgsf.store.devices import DeviceStore
from dgsf.wire.link import host_id

_log = logging.getLogger(__name__)
T = TypeVar("T")
NODES_SECONDS = 1.0
BEAT_SECONDS = 1.0
PROBE_RETRY_SECONDS = 10.0


class Controller:
    """Keeps the pool as it should be; `run` returns only by an exception."""

    def __init__(
        self,
        devices: DeviceStore,
        cluster: Cluster,
        secret: bytes,
        *,
        clock: Clock,
        leads: Callable[[], bool],
        policy: core.Policy | None = None,
        tcp: bool = False,
    ) -> None:
        self.pool = core.Pool(policy)
        self._store = devices
        self._cluster = cluster
        self._secret = secret
        self._clock = clock
        self._leads = leads
        self._tcp = tcp
        self._here = host_id()
        self._tasks: asyncio.TaskGroup
        self._names = NodeNames()
        self._places: dict[str, Place] = {}  # what may be started, by device name
        self._hosts: dict[str, str] = {}  # by node id
        self._servers: dict[str, Registered] = {}
        self._pulses: dict[str, asyncio.Task[None]] = {}
        self._order: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # effects of one device wait in line
        self._probing: set[str] = set()

    async def run(self, joined: Awaitable[None]) -> None:
        """Adopt what runs, then keep it; nodes are looked at once `joined` is done."""
        await self._adopt()
        async with asyncio.TaskGroup() as self._tasks:
            for name in self._servers:
                self._watch(name)
            self._tasks.create_task(self._tick())
            self._tasks.create_task(self._beat_store())
            self._tasks.create_task(self._watch_nodes(joined))

    # --- taking over
    async def _adopt(self) -> None:
        rows = await self._store.list_devices()
        found = await adoptable(rows, self._secret, here=self._here, tcp=self._tcp)
        self._names = NodeNames((row.info.get("node_id", ""), row.node) for row, alive in found if alive)
        for row, alive in found:
            if alive:
                server = self._servers[row.name] = Registered.of(row)
                adopt = core.Adopt(row.name, row.incarnation, core.State(row.state), self._is_near(server))
                self.pool.handle(adopt, self._clock.now_us())
                _log.info("device_adopted", extra={"device": row.name, "incarnation": row.incarnation})
            elif row.state != "lost":
                await self._store.mark_lost(row.id, row.incarnation)
                _log.info("device_lost", extra={"device": row.name, "incarnation": row.incarnation, "why": "not there"})

    # --- events
    def _on(self, event: core.Event) -> None:
        if not self._leads():
            return  # another may lead by now: whatever follows is not ours to do
        for effect in self.pool.handle(event, self._clock.now_us()):
            self._tasks.create_task(self._in_order(effect))

    async def _tick(self) -> None:
        while True:
            self._on(core.Tick())
            await asyncio.sleep(self.pool.policy.tick_us / 1e6)

    async def _beat_store(self) -> None:
        while True:
            alive = [self._servers[device.name].device_id for device in self.pool.alive()]
            if alive:
                await self._retried(lambda ids=alive: self._store.beat(ids))  # type: ignore[misc]  # bound now
            await asyncio.sleep(BEAT_SECONDS)

    async def _watch_nodes(self, joined: Awaitable[None]) -> None:
        await joined
        for actor in await self._insist(self._cluster.actors) - {server.actor for server in self._servers.values()}:
            await self._end_actor(actor)  # a leftover that no row points to
        while True:
            self._see_nodes(await self._insist(self._cluster.nodes))
            await asyncio.sleep(NODES_SECONDS)

    def _see_nodes(self, nodes: list[Node]) -> None:
        present = {node.node_id: node for node in nodes}
        self._names.keep(present)
        for node_id in self._hosts.keys() - present.keys():
            self._lose_node(node_id)
        for node_id in present.keys() - self._hosts.keys() - self._probing:
            self._probing.add(node_id)
            self._tasks.create_task(self._probe(present[node_id]))
        self._withdraw_orphans(set(present))

    def _withdraw_orphans(self, present: set[str]) -> None:
        """Adopted servers that no node offers: its node has gone, or has other devices now."""
        for name, server in list(self._servers.items()):
            settled = server.node_id not in present or server.node_id in self._hosts
            if settled and name in self.pool.devices and name not in self._places:
                self._on(core.Withdraw(name))

    def _lose_node(self, node_id: str) -> None:
        _log.warning("node_lost", extra={"node_id": node_id})
        del self._hosts[node_id]
        for name in [name for name, place in self._places.items() if place.node_id == node_id]:
            del self._places[name]
            self._on(core.Withdraw(name))

    async def _probe(self, node: Node) -> None:
        try:
            specs = await self._cluster.devices_of(node)
        except ClusterLost:
            raise
        except Exception as error:  # one node's trouble, whatever it is, must not stop the others
            _log.warning("node_probe_failed", extra={"node": node.name, "why": str(error)})
            await asyncio.sleep(PROBE_RETRY_SECONDS)
        else:
            self._offer(node, places(node.node_id, self._names.name_of(node.node_id, node.name), specs))
        finally:
            self._probing.discard(node.node_id)

    def _offer(self, node: Node, offered: list[Place]) -> None:
        _log.info("node_seen", extra={"node": node.name, "node_id": node.node_id, "devices": len(offered)})
        self._hosts[node.node_id] = node.host
        for place in offered:
            self._places[place.name] = place
            self._on(core.Offer(place.name))

    # --- effects
    async def _in_order(self, effect: core.Effect) -> None:
        async with self._order[effect.name]:
            match effect:
                case core.Start(name):
                    await self._start(name)
                case core.Kill(name):
                    await self._kill(name)
                case core.MarkLost(name, incarnation):
                    await self._mark(name, "lost", incarnation)
                case core.SetState(name, incarnation, state):
                    await self._mark(name, state, incarnation)

    async def _start(self, name: str) -> None:
        place = self._places.get(name)
        if place is None:
            return self._on(core.StartFailed(name))
        if place.spec.kind == HOST:
            await self._devices_first(place.node_id)
        actor = f"{name}:{secrets.token_hex(4)}"
        try:
            address = await self._cluster.start(actor, place, self._hosts[place.node_id])
            row = await self._retried(lambda: register(self._store, place, actor, address))
            server = self._servers[name] = Registered.of(row)
            await self._introduce(server)
        except (ClusterLost, StoreUnavailable):
            raise
        except Exception as error:  # the server's own trouble, in whatever words Ray tells it
            _log.warning("device_start_failed", extra={"device": name, "why": str(error)})
            await self._end_actor(actor)
            return self._on(core.StartFailed(name))
        _log.info("device_started", extra={"device": name, "incarnation": row.incarnation, "address": address.text()})
        self._on(core.Started(name, row.incarnation, self._is_near(self._servers[name])))
        self._watch(name)
        return None

    async def _introduce(self, server: Registered) -> None:
        """Tell a server who it is; its row is there already, and must not stay if the server does not."""
        try:
            await self._cluster.set_incarnation(server.actor, server.incarnation)
        except (ClusterLost, StoreUnavailable):
            raise
        except Exception:
            await self._retried(lambda: self._store.mark_lost(server.device_id, server.incarnation))
            raise

    async def _devices_first(self, node_id: str) -> None:
        """A starting server keeps a core busy for seconds: a function host waits until its node's devices are up."""
        for place in list(self._places.values()):
            if place.node_id == node_id and place.spec.kind != HOST:
                async with self._order[place.name]:
                    pass

    async def _kill(self, name: str) -> None:
        pulse = self._pulses.pop(name, None)
        if pulse is not None:
            pulse.cancel()
        server = self._servers.get(name)
        if server is not None:
            await self._end_actor(server.actor)

    async def _mark(self, name: str, state: str, incarnation: int) -> None:
        device_id = self._servers[name].device_id
        _log.warning("device_state", extra={"device": name, "state": state, "incarnation": incarnation})
        if state == "lost":
            await self._retried(lambda: self._store.mark_lost(device_id, incarnation))
        else:
            await self._retried(lambda: self._store.set_state(device_id, incarnation, state))

    # --- what they share
    async def _end_actor(self, actor: str) -> None:
        await self._insist(lambda: self._cluster.kill(actor))

    def _is_near(self, server: Registered) -> bool:
        return server.address.host_id == self._here

    def _watch(self, name: str) -> None:
        server = self._servers[name]
        target = Target(name, server.incarnation, server.address)
        pulse = Pulse(target, self._secret, here=self._here, tcp=self._tcp)
        self._pulses[name] = self._tasks.create_task(pulse.run(self.pool.policy.beat_us / 1e6, self._on))

    async def _retried(self, work: Callable[[], Awaitable[T]]) -> T:
        """While we lead, an absent database is waited for."""
        while True:
            try:
                return await work()
            except StoreUnavailable:
                if not self._leads():
                    raise
                await asyncio.sleep(0.1)

    async def _insist(self, work: Callable[[], Awaitable[T]]) -> T:
        """A slow cluster is asked again; whether it is gone, it says itself."""
        while True:
            try:
                return await work()
            except ClusterSlow as error:
                _log.warning("cluster_slow", extra={"why": str(error)})
