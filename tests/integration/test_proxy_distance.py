"""Round trips in a running platform: measured where workers and sessions begin, published, and smoothed."""

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
