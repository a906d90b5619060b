"""Live moves over real device servers: the guest notices nothing, the state arrives whole, drains empty a device."""

import asyncio
import os
import signal

import pytest
from fabric_world import until
from session_kit import MIB, attach, session_world, worker_of

from dgsf.errors import DgsfError


async def test_a_session_moves_with_its_state_while_commands_come_in(database):
    async with session_world(database, "cpu:2:slots=2:price=3") as world:
        guest, session = await attach(world)
        first = (await guest.began()).device
        await guest.command(b"set big=" + b"x" * MIB)
        await guest.command("use 1000")
        await guest.ask("echo before")
        moving = asyncio.create_task(world.proxy.sessions.move(session.id))
        for number in range(500):
            await guest.command(f"set k{number}=v{number}")
        assert len(await guest.ask("get big")) == MIB
        assert await guest.ask("get k499") == b"v499"
        second = await moving
        assert second != first and session.device_name == second
        await guest.command("use 10")
        await guest.ask("echo after")
        assert (session.device_us, session.cost_nano) == (1010, 3030)
        await until(lambda: not world.servers[first]._table.workers)
        assert session.life.generation == 1


async def test_a_session_in_the_middle_of_a_transfer_is_asked_again_later(database):
    async with session_world(database, "cpu:2:slots=2") as world:
        guest, session = await attach(world)
        first = (await guest.began()).device
        await guest.command("busy 1")
        await guest.ask("echo busy")
        moving = asyncio.create_task(world.proxy.sessions.move(session.id))
        await until(lambda: session.mover is not None and session.mover.new is not None)
        assert await guest.ask("echo still answered") == b"still answered"
        await guest.command("busy 0")
        assert await moving != first
        assert await guest.ask("echo there") == b"there"


async def test_a_move_without_another_device_leaves_the_session_where_it_is(database):
    async with session_world(database) as world:
        guest, session = await attach(world)
        await guest.began()
        with pytest.raises(DgsfError, match="no other device"):
            await world.proxy.sessions.move(session.id)
        assert await guest.ask("echo here") == b"here"
        assert len(await world.leases.list_leases()) == 1


async def test_an_executor_that_dies_while_moving_is_a_loss(database):
    async with session_world(database, "cpu:2:slots=2") as world:
        guest, session = await attach(world)
        await guest.began()
        await guest.command("busy 1")
        await guest.ask("echo busy")
        moving = asyncio.create_task(world.proxy.sessions.move(session.id))
        await until(lambda: session.mover is not None and session.mover.new is not None)
        os.kill(worker_of(world, session).child.host_pid, signal.SIGKILL)
        await guest.lost()
        with pytest.raises(DgsfError):
            await moving
        await guest.began()
        assert await guest.ask("echo again") == b"again"


async def test_a_draining_device_loses_its_sessions_to_others_and_takes_no_new_ones(database):
    async with session_world(database, "cpu:2:slots=2") as world:
        guest, session = await attach(world)
        first = (await guest.began()).device
        row = next(row for row in await world.devices.list_devices() if row.name == first)
        await world.devices.set_state(row.id, row.incarnation, "draining")
        await until(lambda: session.device_name not in ("", first))
        assert await guest.ask("echo elsewhere") == b"elsewhere"
        other, _ = await attach(world)
        assert (await other.began()).device != first
        await until(lambda: not world.servers[first]._table.workers)


async def test_a_session_that_is_asked_to_where_it_is_by_now_has_nothing_to_answer(database):
    async with session_world(database, "cpu:2:slots=2") as world:
        guest, session = await attach(world)
        here = (await guest.began()).device
        hub = world.proxy.sessions
        await until(lambda: session.id in hub._written)
        await hub._store.ask_move(session.id, here)
        await hub._move_as_asked(session.id, here)
        (row,) = await hub._store.list_sessions()
        assert (row.move_to, row.move_error) == (None, None)


MIXED = "cpu:2:slots=1,sim:A100:1:values=dummy"


async def test_a_session_with_values_never_comes_to_a_device_with_dummy_values(database):
    async with session_world(database, MIXED) as world:
        guest, session = await attach(world)
        first = (await guest.began()).device
        with pytest.raises(DgsfError, match=r"values are real and those of .*A100.* are dummy"):
            await world.proxy.sessions.move(session.id, "box/sim-A100-0")
        other, _ = await attach(world)
        second = (await other.began()).device
        assert "sim" not in first + second
        third, _ = await attach(world, start_seconds=0.1)
        await third.begin()
        assert "no device for the session" in str(await third.word())
        with pytest.raises(DgsfError, match="no device for the session"):
            await world.proxy.sessions.move(session.id)
        os.kill(worker_of(world, session).child.host_pid, signal.SIGKILL)
        await guest.lost()
        assert (await guest.began()).device == first


async def test_dummy_values_are_had_by_the_name_of_the_type_and_stay_dummy(database):
    async with session_world(database, "sim:A100:1:values=dummy,sim:A100:1:slots=1") as world:
        dummy, real = "box/sim-A100-0", "box/sim-A100-1"
        guest, _ = await attach(world)
        assert (await guest.began()).device == real
        named, session = await attach(world, gpu=("A100",))
        assert (await named.began()).device == dummy
        guest.close()
        await until(lambda: not world.servers[real]._table.workers)
        with pytest.raises(DgsfError, match="no other device"):
            await world.proxy.sessions.move(session.id)
        os.kill(worker_of(world, session).child.host_pid, signal.SIGKILL)
        await named.lost()
        assert (await named.began()).device == dummy
        await until(lambda: session.id in world.proxy.sessions._written)
        heir, _ = await attach(world, gpu=("A100",), resumes=session.id)
        assert (await heir.began()).device == dummy
