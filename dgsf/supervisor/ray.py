"""The Ray that the platform runs on: a local one that we start, or somebody's cluster."""

from __future__ import annotations

import asyncio
import shutil

from dgsf.errors import StartError
from dgsf.fabric.ray_node import RayNode
from dgsf.supervisor.parts import Commands
from dgsf.supervisor.ports import answers, free_port
from dgsf.supervisor.processes import Command

_LOOK_SECONDS = 0.2


async def there(address: str, seconds: float) -> None:
    """StartError if nobody listens at a cluster's address within that time."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return  # 'auto' and the like: for Ray to find
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not await answers(host.strip("[]"), int(port)):
        if loop.time() > deadline:
            raise StartError(
                f"nothing answers at Ray's address {address} for {seconds:g} s; is 'ray start --head' running there? "
                "without --ray-address (DGSF_RAY_ADDRESS) 'dgsf up' starts a Ray of its own"
            )
        await asyncio.sleep(_LOOK_SECONDS)


class LocalRay:
    """A head on the loopback address, or where others can join it; each start is a new session."""

    def __init__(self) -> None:
        self._node: RayNode | None = None

    @property
    def address(self) -> str:
        assert self._node is not None  # its command is made before any other
        return self._node.address

    def command(self, commands: Commands) -> Command:
        folder = commands.layout.ray
        shutil.rmtree(folder, ignore_errors=True)  # sessions of earlier lives
        folder.mkdir(mode=0o700)
        settings = commands.settings
        # Another port each time unless one is set: the old one may still be held by what is dying.
        port = settings.ray_port or free_port(settings.ray_host)
        self._node = RayNode(settings.node_name, folder, port, host=settings.ray_host)
        return commands.ray(self._node)

    async def ready(self) -> bool:
        host, _, port = self.address.rpartition(":")
        return await answers(host, int(port))
