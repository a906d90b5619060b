"""The cluster as Ray sees it: the one module that imports ray.

Ray's calls block, so each runs in a thread of a small pool, with a deadline.  One late answer is
ClusterSlow, none at all for a minute is ClusterLost.  A driver that loses its raylet is ended by Ray itself;
one that loses only the head finds out here.  Each platform has a Ray namespace of its own, so that two share
a cluster without seeing each other's actors.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from dgsf.core.devices import DeviceSpec
from dgsf.core.topology import Place
from dgsf.errors import ConfigError
from dgsf.fabric.actors import DeviceActor, offered_devices
from dgsf.fabric.cluster import ClusterLost, ClusterSlow, Node
from dgsf.fabric.devices import offers
from dgsf.fabric.ray_node import access, is_refusal, token_refused
from dgsf.wire.link import Address

T = TypeVar("T")
CONNECT_SECONDS = 60.0
ANSWER_SECONDS = 10.0
START_SECONDS = 90.0  # a cold node imports torch from disk
LOST_SECONDS = 60.0  # without a single answer: it is not slow, it is gone
_THREADS = 8
_PREFIX = "device:"


@dataclass(frozen=True, slots=True)
class OwnDevices:
    """The devices of the node that the controller runs on, if it knows them: then nobody has to be asked."""

    devices: str
    price_nano_per_us: int
    hosts: str = "0"


class RayCluster:
    """A connection to Ray as a driver; at most one per process."""

    def __init__(
        self, address: str, *, namespace: str, secret: bytes, mark: str, own: OwnDevices | None = None
    ) -> None:
        self._address = address
        self._namespace = namespace
        self._secret = secret
        self._mark = mark
        self._own = own
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="ray")
        self._ray: Any = None
        self._here = ""
        self._answered = 0.0
        self._silent_since: float | None = None

    async def connect(self, patience: float = CONNECT_SECONDS) -> None:
        """Wait for the cluster to answer, then join it."""
        await self._run(lambda: self._connect(patience), 2 * patience + ANSWER_SECONDS)

    def close(self) -> None:
        """Leave; the device servers stay."""
        if self._ray is not None:
            self._ray.shutdown()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # --- the Cluster protocol
    async def nodes(self) -> list[Node]:
        found = await self._run(lambda: self._ray.nodes(), ANSWER_SECONDS)
        return [_node(item) for item in found if item["Alive"]]

    async def devices_of(self, node: Node) -> list[DeviceSpec]:
        def ask() -> list[DeviceSpec]:
            if self._own is not None and node.node_id == self._here:
                return offers(self._own.devices, self._own.hosts, self._own.price_nano_per_us)
            task = self._ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=_pin(node.node_id))(offered_devices)
            return list(self._ray.get(task.remote(), timeout=START_SECONDS))

        return await self._run(ask, START_SECONDS + ANSWER_SECONDS)

    async def start(self, actor: str, place: Place, host: str) -> Address:
        def begin() -> Address:
            made = self._ray.remote(DeviceActor).options(
                name=_PREFIX + actor,
                lifetime="detached",
                num_cpus=0,
                max_restarts=0,
                max_task_retries=0,
                max_concurrency=4,
                scheduling_strategy=_pin(place.node_id),
            )
            handle = made.remote(place, self._secret, self._mark, host)
            found: Address = self._ray.get(handle.start.remote(), timeout=START_SECONDS)
            return found

        return await self._run(begin, START_SECONDS + ANSWER_SECONDS)

    async def set_incarnation(self, actor: str, incarnation: int) -> None:
        def tell() -> None:
            handle = self._ray.get_actor(_PREFIX + actor)
            self._ray.get(handle.set_incarnation.remote(incarnation), timeout=START_SECONDS)

        await self._run(tell, START_SECONDS + ANSWER_SECONDS)

    async def kill(self, actor: str) -> None:
        def end() -> None:
            with contextlib.suppress(ValueError):  # it is gone already
                self._ray.kill(self._ray.get_actor(_PREFIX + actor), no_restart=True)

        if self._ray is not None:
            await self._run(end, ANSWER_SECONDS)

    async def actors(self) -> set[str]:
        names = await self._run(lambda: self._ray.util.list_named_actors(), ANSWER_SECONDS)
        return {name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX)}

    # --- threads
    async def _run(self, work: Callable[[], T], timeout: float) -> T:
        began = time.monotonic()
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            async with asyncio.timeout(timeout):
                answer = await future
        except TimeoutError as error:
            raise self._unanswered(began, timeout) from error
        except (ConnectionError, SystemExit) as error:
            raise ClusterLost(f"Ray at {self._address} is gone: {error}") from error
        self._answered, self._silent_since = time.monotonic(), None
        return answer

    def _unanswered(self, began: float, timeout: float) -> ClusterLost | ClusterSlow:
        """One question without an answer; were there answers to others meanwhile?"""
        if self._silent_since is None:
            self._silent_since = max(began, self._answered)
        silent = time.monotonic() - self._silent_since
        if silent > LOST_SECONDS:
            return ClusterLost(f"Ray at {self._address} has not answered for {silent:.0f} s")
        return ClusterSlow(f"Ray at {self._address} did not answer within {timeout:g} s")

    def _connect(self, patience: float) -> None:
        _wait_for_port(self._address, patience)
        os.environ.update(access("", self._address))
        import ray
        import ray.util

        deadline = time.monotonic() + patience
        while True:
            try:
                ray.init(address=self._address, namespace=self._namespace, log_to_driver=False, configure_logging=False)
                break
            except Exception as error:  # Ray has no common base for "not yet"
                ray.shutdown()
                if is_refusal(error):
                    raise ConfigError(token_refused(self._address)) from None
                if time.monotonic() > deadline:
                    why = str(error).strip().partition("\n")[0]
                    raise ClusterLost(f"cannot join Ray at {self._address} within {patience:g} s: {why}") from error
                time.sleep(0.1)
        self._ray = ray
        self._here = ray.get_runtime_context().get_node_id()


def _wait_for_port(address: str, timeout: float) -> None:
    """Ray's own client is slow and loud when the head is not up yet; a plain connect is neither."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return  # 'auto' and the like: for Ray to find
    deadline = time.monotonic() + timeout
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise ClusterLost(f"nothing answers at Ray's address {address}: {error}") from error
            time.sleep(0.05)


def _node(item: dict[str, Any]) -> Node:
    return Node(item["NodeID"], item["NodeName"] or item["NodeManagerHostname"], item["NodeManagerAddress"])


def _pin(node_id: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node_id, soft=False)
