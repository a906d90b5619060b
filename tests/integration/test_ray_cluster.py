"""The controller as a process on a real Ray cluster of two nodes, and calls that outlive one of them."""

import asyncio
import contextlib
import json
import secrets
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest
from fabric_world import SECRET, world_of

from dgsf.config import Settings
from dgsf.fabric.ray_node import RayNode, access
from dgsf.paths import Layout, mark_of
from dgsf.supervisor.leftovers import end_marked
from dgsf.supervisor.parts import outer_environment

SCRIPT = Path(__file__).with_name("ray_nodes.py")
DEADLINE = 90.0
HEALTHY = {"a/sim-T4-0": "healthy", "a/host0": "healthy", "b/sim-A100-0": "healthy"}
pytestmark = pytest.mark.timeout(300)


class TwoNodes:
    """The cluster's process and what it said."""

    def __init__(self, process, told, environment):
        self.process = process
        self.address = told["address"]
        self.nodes = told["nodes"]
        self.environment = environment

    async def remove_b(self):
        self.process.stdin.write(b"remove\n")
        async with asyncio.timeout(DEADLINE):
            assert await self.process.stdout.readline() == b"removed\n"


@pytest.fixture
async def two_nodes():
    data_dir = Path(tempfile.mkdtemp(prefix="dgsf-rc-"))
    layout = Layout(data_dir, mark_of(data_dir))
    token = secrets.token_hex(32)
    quiet = RayNode("unused", data_dir).environment(Settings(), token) | access(token, "127.0.0.1:0")
    ours = {"DGSF_MARK": layout.mark, "DGSF_DATA_DIR": str(data_dir), "PYTHONWARNINGS": "ignore"}
    environment = outer_environment() | quiet | ours
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(SCRIPT)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment,
    )
    try:
        async with asyncio.timeout(DEADLINE):
            line = await process.stdout.readline()
        yield TwoNodes(process, json.loads(line), environment)
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(DEADLINE):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        await asyncio.to_thread(end_marked, layout.mark)
        shutil.rmtree(data_dir, ignore_errors=True)
        shutil.rmtree(layout.run_dir, ignore_errors=True)
        shutil.rmtree(Path("/dev/shm", layout.shared_name), ignore_errors=True)


@contextlib.asynccontextmanager
async def controller(nodes, url):
    """`dgsf controller` as a process."""
    more = {"DGSF_DATABASE_URL": url, "DGSF_CLUSTER_SECRET": SECRET.decode(), "DGSF_RAY_ADDRESS": nodes.address}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dgsf.cli", "controller"),
        env=nodes.environment | more | access("", nodes.address),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(DEADLINE):
            await process.wait()


async def rows_when(devices, states):
    """The rows by name, once the devices are in these states."""
    async with asyncio.timeout(DEADLINE):
        while True:
            rows = {row.name: row for row in await devices.list_devices()}
            if {name: row.state for name, row in rows.items()} == states:
                return rows
            await asyncio.sleep(0.02)


def whoami(x):
    return x + 1


async def test_devices_of_two_nodes_a_lost_node_and_a_new_controller(two_nodes, fresh_url, database):
    async with world_of(database, devices="", lease_seconds=3.0) as world:
        version = await world.deploy(whoami, retries=3)
        async with controller(two_nodes, fresh_url) as first:
            rows = await rows_when(world.devices, HEALTHY)
            for name, row in rows.items():
                assert row.info["node_id"] == two_nodes.nodes[name[0]], "each server is on the node of its device"
            assert (rows["a/host0"].kind, rows["a/host0"].slots) == ("host", 2)
            assert await world.value(version, 1) == 2

            # a controller that is killed changes nothing for the devices; its successor adopts them
            first.kill()
            await first.wait()
            assert await world.value(version, 2) == 3
            async with controller(two_nodes, fresh_url):
                await _beats(world.devices)
                again = await rows_when(world.devices, HEALTHY)
                assert {name: row.incarnation for name, row in again.items()} == {
                    name: row.incarnation for name, row in rows.items()
                }

                # a node that is lost costs its own devices only
                await two_nodes.remove_b()
                began = time.monotonic()
                lost = await rows_when(world.devices, HEALTHY | {"b/sim-A100-0": "lost"})
                print(f"lost {time.monotonic() - began:.1f} s after the removal")
                assert lost["a/sim-T4-0"].incarnation == rows["a/sim-T4-0"].incarnation
                assert await world.value(version, 3) == 4


async def _beats(devices):
    """Until the controller that is new has reported a heartbeat."""
    before = max(row.heartbeat_at for row in await devices.list_devices())
    async with asyncio.timeout(DEADLINE):
        while max(row.heartbeat_at for row in await devices.list_devices()) == before:
            await asyncio.sleep(0.02)
