"""Placement in a running proxy: real leases and device servers, and what it has learned decides."""

from functools import partial

from fabric_world import until, world_of
from session_kit import attach, session_world


def add(x, y=1):
    return x + y


async def test_a_second_device_is_chosen_because_the_function_was_there(database):
    async with world_of(database, "cpu:2") as world:
        first, second = await world.devices.list_devices()
        version, other = await world.deploy(add, idle_seconds=0.1), await world.deploy(add)
        await world.devices.drain(first.id)
        assert (await world.call(version, 1)).device == second.name
        await until(lambda: not world.proxy.lanes[version].links)
        await until(partial(_free, world))
        await world.devices.restore(first.id)
        assert (await world.call(other, 1)).device == first.name
        assert (await world.call(version, 1)).device == second.name


async def _free(world):
    return not await world.leases.list_leases()


async def test_a_session_returns_to_the_device_that_has_its_uploads(database):
    async with session_world(database, "cpu:2:slots=2") as world:
        first, second = await world.devices.list_devices()
        await world.devices.drain(first.id)
        guest, session = await attach(world)
        await guest.began()
        assert session.device_name == second.name
        await guest.end()
        await until(lambda: session.over.is_set())
        await world.devices.restore(first.id)
        guest, session = await attach(world)
        await guest.began()
        assert session.device_name == second.name
        learned = world.proxy.sessions._opener._placing._durations
        assert learned.expected((f"{world.tenant_id}/", "session")) > 0


async def test_a_device_that_is_restored_takes_work_though_the_drain_left_no_worker(database):
    async with world_of(database, "cpu:1") as world:
        version = await world.deploy(add)
        await world.value(version, 1)
        (device,) = [row for row in await world.devices.list_devices() if not row.is_host]
        await world.devices.drain(device.id)
        await until(lambda: world.proxy._draining and not world.proxy.lanes[version].links)
        await world.devices.restore(device.id)
        await until(lambda: not world.proxy._draining)
        await world.value(version, 1)
