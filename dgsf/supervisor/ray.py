"""The Ray that the platform runs on: a local one that we start, or somebody's cluster."""

from __future__ import annotations

import shutil

from dgsf.fabric.ray_node import RayNode
from dgsf.supervisor.parts import Commands
from dgsf.supervisor.ports import answers, free_port
from dgsf.supervisor.processes import Command


class LocalRay:
    """A head on the loopback address; each start is a new session on a new port."""

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
        # Another port each time: the old one may still be held by what is dying.
        self._node = RayNode(commands.settings.node_name, folder, free_port())
        return commands.ray(self._node)

    async def ready(self) -> bool:
        host, _, port = self.address.rpartition(":")
        return await answers(host, int(port))
