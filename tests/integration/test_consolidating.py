"""The leader frees devices by live moves: real leases, device servers and executors; the programs go on."""

from functools import partial

from fabric_world import until
from session_kit import attach, session_world

from dgsf.clock import ManualClock
from dgsf.core.placement.consolidate import MoveRules
from dgsf.fabric.consolidating import REST_SECONDS, Consolidating
from dgsf.store.sessions import SessionStore

AGED = "UPDATE sessions SET started_at = started_at - interval '1 hour'"
PER_HOUR = 60.0
MINUTE_US = 60_000_000


class Leader:
    """Its looks, by a clock of the test's own; sessions that are hours old in no time."""

    def __init__(self, world):
        self.world, self.clock, self.store = world, ManualClock(), SessionStore(world.database)
        self.work = Consolidating(world.devices, world.leases, self.store, self.clock, MoveRules(PER_HOUR))
        self.clock.advance(2 * MINUTE_US)

    async def look(self):
        """One look, and all that follows from it."""
        await self.work.look()
        await until(self._quiet)

    async def written(self, *sessions):
        """Their rows say where they are."""
        await until(partial(self._written, sessions))

    async def age(self):
        async with self.world.database.acquire() as connection:
            await connection.execute(AGED)

    async def in_use(self):
        return {lease.device_name for lease in await self.world.leases.list_leases()}

    async def _quiet(self):
        return not any(seat.on_the_move for seat in await self.store.seats())

    async def _written(self, sessions):
        seats = {seat.id: seat for seat in await self.store.seats()}
        return all(
            session.id in seats and seats[session.id].attached and seats[session.id].device_id == session.device_id
            for session in sessions
        )


async def two_apart(world):
    """Two sessions with something to remember, each on a device of its own."""
    (first, one), (second, two) = await attach(world), await attach(world)
    await first.began()
    await second.began()
    for guest, word in ((first, "red"), (second, "blue")):
        await guest.command(f"set colour={word}")
        assert await guest.ask("get colour") == word.encode()
    if one.device_name == two.device_name:
        await world.proxy.sessions.move(two.id)
    assert one.device_name != two.device_name
    return (first, one), (second, two)


async def test_two_half_empty_devices_become_one_and_the_sessions_go_on(database):
    async with session_world(database, "cpu:2:slots=4") as world:
        (first, one), (second, two) = await two_apart(world)
        leader = Leader(world)
        await leader.written(one, two)
        await leader.look()
        assert one.device_name != two.device_name, "they have only just come"
        await leader.age()
        await leader.look()
        assert one.device_name == two.device_name
        await until(partial(_one_in_use, leader))
        assert [await first.ask("get colour"), await second.ask("get colour")] == [b"red", b"blue"]
        assert (one.life.generation, two.life.generation) == (1, 1), "no replay: the guests noticed nothing"
        await leader.look()
        assert len(await leader.in_use()) == 1


async def _one_in_use(leader):
    return len(await leader.in_use()) == 1


async def test_nothing_moves_to_a_draining_device_or_beyond_the_rate(database):
    async with session_world(database, "cpu:3:slots=4") as world:
        (_, one), (_, two) = await two_apart(world)
        leader = Leader(world)
        await leader.written(one, two)
        await leader.age()
        devices = {row.name: row for row in await world.devices.list_devices()}
        here = (one.device_name, two.device_name)
        leader.work._budget.spend(2)
        await leader.look()
        assert (one.device_name, two.device_name) == here, "no move is left for now"
        leader.clock.advance(2 * MINUTE_US)
        for name in here:
            row = devices[name]
            await world.devices.set_state(row.id, row.incarnation, "suspect")
        await leader.look()
        assert (one.device_name, two.device_name) == here
        for name in here:
            row = devices[name]
            await world.devices.set_state(row.id, row.incarnation, "healthy")
        await leader.look()
        assert one.device_name == two.device_name


async def test_a_move_that_failed_is_told_and_not_asked_for_again_at_once(database, caplog):
    async with session_world(database, "cpu:2:slots=4") as world:
        (first, one), (second, two) = await two_apart(world)
        leader = Leader(world)
        await leader.written(one, two)
        await leader.age()
        here = (one.device_name, two.device_name)
        for guest in (first, second):
            await guest.command("busy 1")  # in the middle of a transfer, for as long as it is asked
            await guest.ask("echo busy")
        await leader.look()
        assert (one.device_name, two.device_name) == here
        await leader.look()  # hears of it, and may ask the other one
        told = [record for record in caplog.records if record.message == "session_not_consolidated"]
        assert len(told) == 1 and "in the middle of transfers" in told[0].error
        for guest in (first, second):
            await guest.command("busy 0")
            await guest.ask("echo free")
        await leader.look()
        assert (one.device_name, two.device_name) == here, "both rest"
        leader.clock.advance(int(REST_SECONDS * 1e6) + 1)
        await leader.look()
        assert one.device_name == two.device_name
