"""Parts killed with -9: the platform comes back by itself, or at the next start, with its data."""

from __future__ import annotations

import time

import pytest
from platforms import kill

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def durable(start_for_module):
    """One platform for all kills of parts, and in the end its own."""
    return start_for_module("data").wait_ready()


def well_with(platform, incarnation):
    """Healthy under a later incarnation."""
    return lambda: any(row["incarnation"] > incarnation for row in platform.healthy())


@pytest.mark.parametrize("part", ["dgsf.cli controller", "dgsf.cli gateway"])
def test_a_killed_part_is_replaced_and_the_device_is_left_as_it_is(durable, part):
    before = durable.healthy_device()
    (victim,) = durable.find(part)
    server = durable.device_server()
    kill(victim)
    durable.wait_until(lambda: durable.find(part) not in ([], [victim]), f"a new {part}")
    durable.wait_until(lambda: durable.get("/readyz")[0] == 200, "readiness")
    if part.endswith("controller"):  # it has adopted the device when it reports it again
        seen = durable.healthy_device()["heartbeat_at"]
        durable.wait_until(lambda: [row["heartbeat_at"] for row in durable.healthy()] > [seen], "a heartbeat")
    assert durable.healthy_device()["incarnation"] == before["incarnation"]
    assert durable.device_server() == server


@pytest.mark.parametrize("part", ["ray::DeviceActor", "raylet/raylet", "gcs/gcs_server", "dgsf.fabric.ray_start"])
def test_a_killed_server_of_the_fabric_is_replaced_under_a_new_incarnation(durable, part, record_property):
    before = durable.healthy_device()["incarnation"]
    kill(durable.device_server() if part == "ray::DeviceActor" else durable.find(part)[0])
    began = time.monotonic()
    durable.wait_until(well_with(durable, before), f"a healthy device after the end of {part}")
    record_property("seconds", round(time.monotonic() - began, 1))
    print(f"{part}: healthy again after {time.monotonic() - began:.1f} s")
    durable.wait_until(lambda: durable.get("/readyz")[0] == 200, "readiness")


def test_a_killed_postgres_comes_back_with_its_data(durable):
    key = durable.api_key
    old = durable.postgres_pid()
    kill(old)
    durable.wait_until(lambda: _pid_or_none(durable) not in (None, old), "a new Postgres")
    durable.wait_until(lambda: durable.get("/readyz")[0] == 200 and bool(durable.healthy()), "readiness")
    assert durable.get("/v1/functions", key)[0] == 200


def _pid_or_none(platform):
    try:
        return platform.postgres_pid()
    except (OSError, ValueError, IndexError):
        return None


def test_after_kill_9_of_the_supervisor_the_next_start_cleans_up_and_goes_on(durable, start_for_module):
    key = durable.api_key
    kill(durable.process.pid)
    durable.wait_ended()

    second = start_for_module("data").wait_ready()
    assert second.api_key == key
    assert second.get("/v1/functions", key)[0] == 200
    assert len(second.find("dgsf.cli gateway")) == 1
    assert second.stop() == 0
    second.assert_nothing_left()
