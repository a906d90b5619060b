"""What the controller asks of a cluster: nodes, and device servers on them.

A Protocol, so that the controller knows no Ray.  `ray_cluster.RayCluster` is the one for production.
A cluster only starts and ends servers; whether they are well is for the heartbeat to find out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dgsf.core.devices import DeviceSpec
from dgsf.core.topology import Place
from dgsf.errors import PlatformError
from dgsf.wire.link import Address


class ClusterLost(PlatformError):
    """The cluster does not answer."""

    code = "cluster_lost"


class ClusterSlow(PlatformError):
    """The cluster has not answered this question in time; it may answer the next one."""

    code = "cluster_slow"


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster."""

    node_id: str
    name: str
    host: str


class Cluster(Protocol):
    """Raises ClusterLost when the cluster itself is gone, ClusterSlow when one answer did not come in time,
    another error when one request failed."""

    async def nodes(self) -> list[Node]:
        """The nodes that the cluster believes to be alive."""
        ...

    async def devices_of(self, node: Node) -> list[DeviceSpec]:
        """What this node offers, by its own settings."""
        ...

    async def start(self, actor: str, place: Place, host: str) -> Address:
        """Start a device server under this name on that place's node; it has no incarnation yet."""
        ...

    async def set_incarnation(self, actor: str, incarnation: int) -> None: ...

    async def kill(self, actor: str) -> None:
        """End it if it is there; does not wait."""
        ...

    async def actors(self) -> set[str]:
        """The names of all device servers of this platform that the cluster knows."""
        ...
