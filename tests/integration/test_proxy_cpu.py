"""cpu= in a running proxy: instances wait for the processors they ask for, and idle ones give theirs up."""

import asyncio

from fabric_world import ended, until, world_of


def slow(x):
    import time

    time.sleep(0.3)
    return x


def add(x, y=1):
    return x + y


async def test_instances_run_at_once_only_as_far_as_the_processors_go(database):
    async with world_of(database, devices="") as world:
        await world.add_device("cpu:2:slots=4", info={"cpus": 4})
        version = await world.deploy(slow, cpu=1.5)
        streams = [world.open(version, number)[1] for number in range(6)]
        most = 0
        results = asyncio.gather(*(ended(stream) for stream in streams))
        while not results.done():
            most = max(most, len(await world.leases.list_leases()))
            await asyncio.sleep(0.005)
        assert all(result.failure is None for result in await results)
        assert most == 2, "8 slots, but 3 of 4 processors are taken by two"


async def test_an_idle_instance_gives_up_its_processors_and_one_without_stays(database):
    async with world_of(database, devices="") as world:
        await world.add_device("cpu:1:slots=4", info={"cpus": 2})
        bystander, holder = await world.deploy(add), await world.deploy(add, cpu=1)
        assert await world.value(bystander, 1) == 2
        assert await world.value(holder, 2) == 3
        wanting = await world.deploy(add, cpu=2)
        assert await world.value(wanting, 3) == 4
        await until(lambda: not world.proxy.lanes[holder].links)
        assert world.proxy.lanes[bystander].links, "its slot was never needed"
        assert [lease.cpu_milli for lease in await world.leases.list_leases() if lease.version_id == wanting] == [2000]
