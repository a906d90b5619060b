"""Deploying functions over the fabric: what the pool must have for them, and how hosts are listed."""

import asyncio

import pytest
import pytest_asyncio
from gateway_world import fresh_database, running

from dgsf.store.devices import DeviceStore
from gateway import deploy as deploying

pytestmark = pytest.mark.asyncio(loop_scope="module")
MIB = 1024 * 1024


@pytest_asyncio.fixture(loop_scope="module")
async def world(database_url):
    async with fresh_database(database_url) as database, running(database) as found:
        yield found


async def add_host(world, memory=1024 * MIB, **info):
    await DeviceStore(world.database).register(
        name="here/host0", node="here", kind="host", type="host", memory_bytes=memory, slots=2, speed=1.0,
        price_nano_per_us=0, host_id="h", unix_path="/nowhere", tcp_host=None, tcp_port=None, info=info,
    )  # fmt: skip


async def test_without_a_function_host_the_deploy_may_be_tried_again(world, monkeypatch):
    monkeypatch.setattr(deploying, "HOST_SECONDS", 0.1)
    answer = await world.deploy("far", options={"attach": "fabric"})
    assert (answer.status, answer.code) == (503, "no_device") and "function host" in answer.json["detail"]


async def test_a_deploy_waits_for_the_first_function_host(world):
    deploy = asyncio.create_task(world.deploy("far", options={"attach": "fabric"}))
    await add_host(world)
    assert (await deploy).status == 201


async def test_body_and_session_must_each_fit_somewhere(world):
    await add_host(world)
    fits = {"attach": "fabric", "memory": 1024 * MIB, "gpu_memory": 4096 * MIB}
    assert (await world.deploy("far", options=fits)).status == 201
    large_body = await world.deploy("far", options={**fits, "memory": 1025 * MIB})
    assert large_body.code == "does_not_fit" and "function host" in large_body.json["detail"]
    large_session = await world.deploy("far", options={**fits, "gpu_memory": 4097 * MIB})
    assert large_session.code == "does_not_fit" and "no device" in large_session.json["detail"]


async def test_a_body_must_find_as_many_processors_as_it_asks_for(world):
    await add_host(world, cpus=2)
    assert (await world.deploy("far", options={"attach": "fabric", "cpu": 2})).status == 201
    refused = await world.deploy("far", options={"attach": "fabric", "cpu": 2.5})
    assert refused.code == "does_not_fit"
    assert "asks for 2.5 processors; the largest node with a function host has 2" in refused.json["detail"]


async def test_hosts_are_listed_apart_and_are_no_devices(world):
    await add_host(world)
    told = (await world.ask("GET", "/v1/devices")).json
    assert [row["name"] for row in told["devices"]] == ["cpu-0"]
    assert [row["name"] for row in told["hosts"]] == ["here/host0"]
    refused = await world.deploy("near", options={"gpu": "host"})
    assert refused.code == "invalid_option"


async def test_a_host_alone_does_not_make_a_platform_ready(world):
    await add_host(world)
    devices = DeviceStore(world.database)
    for row in await devices.list_devices():
        if not row.is_host:
            await devices.set_state(row.id, row.incarnation, "quarantined")
    assert (await world.ask("GET", "/readyz")).code == "no_device"
