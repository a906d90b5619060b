"""The parts of a platform as commands: what each runs, and what it finds in its environment."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from dgsf.config import PREFIX, Settings
from dgsf.fabric.ray_node import RayNode, access
from dgsf.paths import Layout
from dgsf.supervisor.processes import Command

_CLIENT_ONLY = ("DGSF_URL", "DGSF_API_KEY")


@dataclass(frozen=True, slots=True)
class Commands:
    """Makes the command of each part; `settings` are complete: database, secret, port, mark."""

    settings: Settings
    layout: Layout
    ray_token: str = ""

    def gateway(self, name: str) -> Command:
        return self._ours("gateway", name)

    def proxy(self) -> Command:
        return self._ours("proxy", "proxy")

    def controller(self, ray_address: str, *options: str) -> Command:
        settings = self.settings.with_changes(ray_address=ray_address)
        extra = access(self.ray_token, ray_address)
        return self._ours("controller", "controller", *options, settings=settings, extra=extra)

    def ray(self, node: RayNode) -> Command:
        environment = outer_environment() | node.environment(self.settings, self.ray_token)
        return Command("Ray", node.command(), environment, self.layout.logs / "ray.log")

    def _ours(
        self,
        command: str,
        name: str,
        *options: str,
        settings: Settings | None = None,
        extra: dict[str, str] | None = None,
    ) -> Command:
        ours = (settings or self.settings).environment()
        for variable in _CLIENT_ONLY:
            ours.pop(variable, None)
        argv = [sys.executable, "-m", "dgsf.cli", command, *options]
        return Command(name, argv, outer_environment() | ours | (extra or {}), self.layout.logs / f"{name}.log")


def outer_environment() -> dict[str, str]:
    """Ours without settings, which each part gets anew, and with the way to this very package."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    root = str(Path(__file__).resolve().parents[2])
    others = [item for item in kept.get("PYTHONPATH", "").split(os.pathsep) if item and item != root]
    return {**kept, "PYTHONPATH": os.pathsep.join([root, *others]), "PYTHONUNBUFFERED": "1"}
