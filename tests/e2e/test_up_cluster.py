"""A platform on somebody else's Ray cluster, and a machine that joins it with `dgsf fabric`."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dgsf.config import Settings
from dgsf.fabric.ray_node import RayNode, access
from dgsf.supervisor.parts import outer_environment
from dgsf.supervisor.ports import free_port

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def head():
    """A Ray head that is not the platform's: its address and the variables to reach it."""
    folder = Path(tempfile.mkdtemp(prefix="dgsf-h-"))
    node = RayNode("head", folder, free_port())
    token = secrets.token_hex(32)
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(
            node.command(), stdout=log, stderr=log, env=outer_environment() | node.environment(Settings(), token)
        )
    try:
        yield process, node.address, access(token, node.address)
    finally:
        process.terminate()
        process.wait(120)
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def second_machine(address, variables, data_dir):
    """`dgsf fabric` with a simulated GPU, until it is told to leave."""
    words = ["fabric", "--ray-address", address, "--devices", "sim:T4:1", "--node", "second", "--data-dir"]
    process = subprocess.Popen(
        [sys.executable, "-m", "dgsf.cli", *words, str(data_dir)],
        stderr=subprocess.PIPE,
        text=True,
        env=outer_environment() | variables,
        start_new_session=True,
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert said.rstrip().endswith("stopping\nstopped")


def test_devices_of_a_joined_machine_come_and_go_and_none_is_left_on_the_cluster(head, start, tmp_path):
    ray, address, variables = head
    platform = start("data", "--ray-address", address, environment=variables).wait_ready()
    assert platform.find("ray_start") == [], "no Ray of its own is started"
    with second_machine(address, variables, tmp_path):
        platform.wait_until(lambda: len(platform.healthy()) == 2, "both machines' devices")
        assert sorted(platform.devices()) == ["head/cpu0", "second/sim-T4-0"]
    platform.wait_until(lambda: platform.devices().get("second/sim-T4-0", {}).get("state") == "lost", "the loss")
    assert platform.healthy_device()["name"] == "head/cpu0"

    assert platform.stop() == 0
    platform.wait_until(lambda: not _device_actors(ray.pid), "the end of the device servers")
    assert ray.poll() is None


def _device_actors(root: int) -> list[int]:
    """The device servers below this process."""
    parents: dict[int, int] = {}
    titles: dict[int, bytes] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            titles[int(entry.name)] = (entry / "cmdline").read_bytes()
        except OSError:
            continue

    def below(pid: int) -> bool:
        return pid == root or (pid in parents and parents[pid] > 1 and below(parents[pid]))

    return [pid for pid, title in titles.items() if title.startswith(b"ray::DeviceActor") and below(pid)]
