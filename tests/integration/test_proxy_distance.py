"""Round trips in a running platform: measured where workers and sessions begin, published, and smoothed."""

import asyncio
import contextlib

from fabric_world import until, world_of
from session_kit import attach, session_world

from dgsf.clock import SystemClock


def add(x, y=1):
    return x + y


async def test_starting_a_worker_measures_the_way_and_publishes_it(database):
    async with world_of(database) as world:
        (before,) = await world.devices.list_devices()
        assert before.round_trip_us is None
        await world.value(await world.deploy(add), 1)

        async def published():
            return (await world.devices.list_devices())[0].measured

        (found,) = await until(published)
        assert 0 < found.round_trip_us < 10_000_000 and found.near and found.sessions and not found.is_host
        assert world.proxy.distances.known()[before.id][1] > 0


async def test_a_session_measures_the_way_to_its_executor(database):
    async with session_world(database) as world:
        guest, session = await attach(world)
        await guest.began()
        await until(lambda: world.proxy.distances.known())
        assert await guest.ask("get x") == b"nothing", "and nobody else notices"
        assert session.device_name


async def test_an_idle_worker_brings_down_what_a_busy_moment_had_measured(database, monkeypatch):
    monkeypatch.setattr("proxy.measuring.AGAIN_SECONDS", 0.0)
    async with world_of(database) as world:
        deployed = await world.deploy(add)
        await world.value(deployed, 1)
        (device,) = await world.devices.list_devices()
        world.proxy.distances.saw(device.id, device.incarnation, 9e9)
        assert world.proxy.distances.known()[device.id][1] > 1e9
        await until(lambda: world.proxy.distances.known()[device.id][1] < 1e9)

        async def published():
            return (await world.devices.list_devices())[0].round_trip_us

        assert await until(published) < 1e9
        assert await world.value(deployed, 2) == 3, "and the worker goes on as before"


async def test_an_attached_session_brings_it_down_too(database, monkeypatch):
    monkeypatch.setattr("proxy.measuring.AGAIN_SECONDS", 0.0)
    async with session_world(database) as world:
        guest, _ = await attach(world)
        await guest.began()
        ((device_id, (life, _)),) = (await until(world.proxy.distances.known)).items()
        world.proxy.distances.saw(device_id, life, 9e9)
        await until(lambda: world.proxy.distances.known()[device_id][1] < 1e9)
        assert await guest.ask("get x") == b"nothing", "and nobody else notices"


async def test_calls_that_come_while_a_worker_is_asked_get_their_parts_undisturbed(database):
    """Arguments and results that travel in parts, over and over, while it is asked at every turn."""
    async with world_of(database, transport="tcp", inline_bytes=1024) as world:
        deployed = await world.deploy(add)
        await world.value(deployed, 1)
        (link,) = [link for lane in world.proxy.lanes.values() for link in lane.links]

        async def ask():
            while True:
                if link.may_echo:
                    link.measure(SystemClock(), lambda us: None)
                await asyncio.sleep(0)

        asking = asyncio.create_task(ask())
        for size in (10, 100_000, 3_000_000) * 5:
            assert len(await world.value(deployed, b"x" * size, b"y")) == size + 1
        asking.cancel()
        assert not link.lost


async def test_a_longer_way_is_measured_as_such(database):
    """Behind a relay that holds everything back for 3 ms, no echo can take less than 6 ms."""
    async with world_of(database, transport="tcp") as world, contextlib.AsyncExitStack() as stack:
        (device,) = await world.devices.list_devices()
        port = await stack.enter_async_context(slow_relay(device.tcp_port, 0.003))
        async with database.acquire() as connection:
            await connection.execute("UPDATE devices SET tcp_port = $1", port)
        await world.value(await world.deploy(add), 1)
        assert world.proxy.distances.known()[device.id][1] >= 6000


@contextlib.asynccontextmanager
async def slow_relay(port, seconds):
    """A port that leads to another one, the slow way."""
    tasks = set()

    async def visit(reader, writer):
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        for way in (_pass_on(reader, far_writer, seconds), _pass_on(far_reader, writer, seconds)):
            tasks.add(asyncio.create_task(way))

    server = await asyncio.start_server(visit, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pass_on(reader, writer, seconds):
    try:
        while data := await reader.read(1 << 16):
            await asyncio.sleep(seconds)  # this is the way itself, nobody waits for a state here
            writer.write(data)
    finally:
        writer.close()
