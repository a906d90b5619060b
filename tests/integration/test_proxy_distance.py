"""Round trips in a running platform: measured where workers and sessions begin, published, and smoothed."""

import asyncio
import contextlib

from fabric_world import until, world_of
from session_kit import attach, session_world


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
