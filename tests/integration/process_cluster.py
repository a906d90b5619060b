"""A cluster without Ray: nodes are entries in a dict, device servers are real processes on this machine."""

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from dgsf.core.devices import parse_devices
from dgsf.fabric.cluster import ClusterLost, ClusterSlow, Node
from dgsf.supervisor.parts import outer_environment
from dgsf.wire.link import Address

SCRIPT = Path(__file__).with_name("device_process.py")
DEADLINE = 60.0
MIB = 1024 * 1024


class ProcessCluster:
    """Implements dgsf.fabric.cluster.Cluster."""

    def __init__(self, folder: Path) -> None:
        self.secret = secrets.token_bytes(32)
        self.offers: dict[str, tuple[Node, str]] = {}
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.killed: list[str] = []
        self.starts = 0
        self.failures = 0  # so many starts fail
        self.gone = False
        self.slow = 0  # so many questions are not answered in time
        self._folder = folder
        self._shared = f"dgsf-test-{secrets.token_hex(6)}"

    def add(self, node_id: str, name: str, devices: str) -> None:
        self.offers[node_id] = (Node(node_id, name, "127.0.0.1"), devices)

    def pid_of(self, device: str) -> int:
        """The process that serves this device now."""
        actor = [name for name in self.processes if name.startswith(f"{device}:")][-1]
        return self.processes[actor].pid

    # --- Cluster
    def _answer(self):
        if self.gone:
            raise ClusterLost("gone")
        if self.slow:
            self.slow -= 1
            raise ClusterSlow("slow")

    async def nodes(self):
        self._answer()
        return [node for node, _ in self.offers.values()]

    async def devices_of(self, node):
        return parse_devices(self.offers[node.node_id][1].replace("cpu:", "sim:T4:"))

    async def start(self, actor, place, host):
        self.starts += 1
        if self.failures:
            self.failures -= 1
            raise RuntimeError("no luck today")
        told = {
            "spec": asdict(place.spec),
            "name": place.name,
            "secret": self.secret.hex(),
            "run_dir": str(self._folder),
            "shared_name": self._shared,
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(SCRIPT), json.dumps(told)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=outer_environment(),
        )
        self.processes[actor] = process
        return Address(**json.loads(await self._line(process)))

    async def set_incarnation(self, actor, incarnation):
        self._answer()
        process = self.processes[actor]
        process.stdin.write(f"{incarnation}\n".encode())
        assert await self._line(process) == b"ok\n"

    async def kill(self, actor):
        self._answer()
        self.killed.append(actor)
        with contextlib.suppress(KeyError, ProcessLookupError):
            self.processes[actor].kill()

    async def actors(self):
        self._answer()
        return {actor for actor, process in self.processes.items() if process.returncode is None}

    # --- for tests
    async def _line(self, process):
        async with asyncio.timeout(DEADLINE):
            line = await process.stdout.readline()
        assert line, "the device server ended"
        return line

    async def close(self):
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
                process.kill()
        for process in self.processes.values():
            await process.communicate()
        shutil.rmtree(Path("/dev/shm", self._shared), ignore_errors=True)


@contextlib.asynccontextmanager
async def process_cluster():
    folder = Path(tempfile.mkdtemp(prefix="dgsf-c-"))
    cluster = ProcessCluster(folder)
    try:
        yield cluster
    finally:
        await cluster.close()
        shutil.rmtree(folder, ignore_errors=True)
