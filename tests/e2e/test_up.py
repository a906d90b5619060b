"""`dgsf up` from the outside: starting, stopping, refusing, and two of them side by side."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dgsf.supervisor.parts import outer_environment

pytestmark = pytest.mark.timeout(400)


def test_it_says_ready_and_answers(platform):
    assert re.fullmatch(r"ready http://127\.0\.0\.1:\d+", next(line for line in platform.lines if "ready http" in line))
    assert platform.get("/readyz")[0] == 200
    assert [platform.healthy_device()["name"]] == list(platform.devices())


def test_progress_is_shown_with_times(platform):
    for part in ("postgres", "ray", "gateway", "devices"):
        assert re.search(rf"^{part} ready \(\d+\.\d s\)$", platform.said, re.MULTILINE), platform.said


def test_secrets_and_folders_are_private(platform):
    client = platform.data_dir / "client.json"
    assert json.loads(client.read_text()) == {"url": platform.url, "api_key": platform.api_key}
    for file in (client, platform.layout.secret_file, platform.layout.ray_token_file):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for folder in (platform.data_dir, platform.layout.run_dir, platform.layout.logs):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_ray_listens_on_loopback_only_and_workers_run_at_the_platforms_own_priority(platform):
    inodes = {}
    for pid in [item.pid for item in platform.processes()]:
        for target in _open_files(pid):
            if target.startswith("socket:["):
                inodes[target[8:-1]] = pid
    for table, loopback in (("tcp", "0100007F"), ("tcp6", "0000000000000000FFFF00000100007F")):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                assert fields[1].split(":")[0] == loopback, f"process {inodes[fields[9]]} listens on {fields[1]}"
    for server in platform.find("ray::DeviceActor"):
        assert os.getpriority(os.PRIO_PROCESS, server) == os.getpriority(os.PRIO_PROCESS, platform.process.pid)


def _open_files(pid):
    """What a process has open; some of it may be closed while we look."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                found.append(os.readlink(f"/proc/{pid}/fd/{number}"))
    return found


def test_a_second_one_on_the_same_data_dir_is_refused_and_named(platform, start):
    words = [sys.executable, "-m", "dgsf.cli", "up", "--port", "0", "--data-dir", str(platform.data_dir)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=outer_environment())
    assert done.returncode == 2
    assert f"process {platform.process.pid}" in done.stderr and "Traceback" not in done.stderr
    assert platform.get("/readyz")[0] == 200


def test_a_taken_port_is_told_at_once(start):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = start("data", "--port", str(taken.getsockname()[1]))
        assert refused.wait_ended() == 2
    assert "is taken by another program" in refused.said and "Traceback" not in refused.said
    refused.assert_nothing_left()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--devices", "gpu:1"), "--devices (DGSF_DEVICES): 'gpu:1'"),
        (("--gateways", "2", "--proxy", "inside"), "several gateways need the proxy apart"),
        (("--database-url", "postgresql://nobody@127.0.0.1:1/x"), "--database-url (DGSF_DATABASE_URL)"),
    ],
)
def test_bad_settings_are_one_clear_line(start, options, words):
    refused = start("data", *options)
    assert refused.wait_ended() != 0
    assert words in refused.said and "Traceback" not in refused.said
    assert "stopping" not in refused.said, "it is told before anything starts"
    refused.assert_nothing_left()


def test_a_part_that_cannot_start_ends_all_with_its_last_words(start):
    broken = start("data", environment={"RAY_raylet_start_wait_time_s": "not a number"})  # Ray does not like it
    assert broken.wait_ended() != 0
    assert "does not start" in broken.said and "ray.log" in broken.said
    broken.assert_nothing_left()


def test_sigterm_stops_everything_and_a_second_start_has_the_old_data(start):
    first = start("data").wait_ready()
    key = first.api_key
    assert first.stop(signal.SIGTERM) == 0
    first.assert_nothing_left()
    assert first.said.rstrip().endswith("stopped")

    second = start("data").wait_ready()
    assert second.api_key == key, "a key that still works is kept"
    assert second.get("/v1/functions", key)[0] == 200
    assert second.healthy_device()["incarnation"] > 1, "the device of the first run is not taken for the new one"
    assert second.stop_at_once() == 0
    second.assert_nothing_left()
    assert "Traceback" not in second.said


def test_ctrl_c_twice_while_it_starts_leaves_nothing_either(start):
    early = start("data")
    early.wait_until(lambda: "postgres ready" in early.said, "a database", alive=True)
    assert early.stop_at_once() == 0
    early.assert_nothing_left()
    assert "Traceback" not in early.said


def test_two_platforms_live_side_by_side_and_parts_can_be_apart(platform, start):
    other = start("other", "--gateways", "2", "--proxy", "apart", "--devices", "cpu:1,sim:T4:1").wait_ready()
    assert other.url != platform.url
    assert len(other.find("dgsf.cli gateway")) == 2 and len(other.find("dgsf.cli proxy")) == 1
    other.wait_until(lambda: len(other.healthy()) == 2, "two healthy devices")
    assert other.get("/v1/devices", platform.api_key)[0] == 401, "keys are not shared"
    assert other.stop() == 0
    other.assert_nothing_left()
    assert platform.get("/readyz")[0] == 200
