"""Sessions over real device servers and Postgres: relay, loss, bad guests, and what they cost."""

import asyncio
import os
import signal

from fabric_world import until
from session_kit import MIB, attach, session_world, worker_of

from dgsf.clock import SystemClock
from dgsf.core.session import MAX_LOSSES
from dgsf.store.calls import CallStore
from dgsf.store.proxies import ProxyStore
from dgsf.store.sessions import SessionStore
from dgsf.wire.frames import HEADER, Kind
from dgsf.wire.session import Ended
from proxy.sessions.billing import Biller


async def workers_gone(world):
    await until(lambda: not any(server._table.workers for server in world.servers.values()))

    async def free():
        return not await world.leases.list_leases()

    await until(free)


async def test_commands_reach_the_executor_and_answers_come_back_in_order(database):
    async with session_world(database) as world:
        guest, session = await attach(world)
        began = await guest.began()
        assert (began.generation, began.device, began.kind) == (1, "box/cpu0", "cpu")
        for number in range(200):
            await guest.command(f"echo {number}")
        assert [(await guest.answer()).body for _ in range(200)] == [str(number).encode() for number in range(200)]
        await guest.end()
        assert isinstance(await guest.word(), Ended)
        await guest.closed()
        await session.over.wait()
        await workers_gone(world)


async def test_large_frames_go_both_ways(database):
    async with session_world(database) as world:
        guest, _ = await attach(world)
        await guest.began()
        for _ in range(20):
            await guest.command(b"size " + b"x" * MIB)
        assert [(await guest.answer()).body for _ in range(20)] == [str(MIB).encode()] * 20
        await guest.command("flood 100")
        sizes = [len((await guest.answer()).body) for _ in range(101)]
        assert sizes == [256 * 1024] * 100 + [len(b"flooded")]
        guest.close()


async def test_a_dead_executor_is_told_and_the_next_generation_gets_another_device(database):
    async with session_world(database, "cpu:2:slots=2") as world:
        guest, session = await attach(world)
        first = (await guest.began()).device
        os.kill(worker_of(world, session).child.host_pid, signal.SIGKILL)
        lost = await guest.lost()
        assert lost.resumable and lost.generation == 1 and lost.failure.code == "session_lost"
        await guest.command("echo for the old one")  # it is dropped
        assert (await guest.began()).device != first
        assert await guest.ask("echo hello") == b"hello"
        guest.close()
        await workers_gone(world)


async def test_replay_is_not_billed_again(database):
    async with session_world(database) as world:
        guest, session = await attach(world)
        await guest.began()
        await guest.command("use 500000")
        await guest.ask("echo 1")
        assert session.device_us == 500_000
        await guest.command("die")
        await guest.lost()
        await guest.began()
        await guest.command("use 600000")
        await guest.ask("echo 2")
        await guest.replayed()
        await guest.command("use 70000")
        await guest.ask("echo 3")
        assert session.device_us == 570_000
        await guest.end()
        await session.over.wait()

        async def billed():
            return await world.ledger.usage(world.tenant_id)

        (row,) = await until(billed)
        assert (row.function_name, row.calls, row.device_us, row.amount_nano) == ("(attached)", 1, 570_000, 570_000)
        assert (await world.ledger.check()).clean


async def test_a_guest_that_loses_its_devices_by_not_reading_pays_for_all_that_it_uses(database):
    async with session_world(database) as world:
        guest, session = await attach(world)
        await guest.began()
        used, span = 0, 100_000
        for _ in range(MAX_LOSSES):
            await guest.command("flood 400")  # not read: its device is taken back
            await until(lambda: session.life.state == "lost")
            await guest.lost()
            await guest.began()
            await guest.command(f"use {span}")  # new work, whatever it calls it
            await guest.ask("echo 1")
            await guest.replayed()
            used, span = used + span, 2 * span
            assert session.device_us == used
        await guest.command("flood 400")
        await session.over.wait()
        assert session.life.losses == MAX_LOSSES + 1, "its word that the replays were over forgives none"


async def test_a_crash_of_the_executor_is_the_programs_own_and_paid(database):
    async with session_world(database) as world:
        guest, session = await attach(world)
        await guest.began()
        await guest.command("use 500000")
        await guest.ask("echo 1")
        await guest.command("exit 3")
        assert (await guest.lost()).failure.code == "executor_crashed"
        await guest.began()
        await guest.command("use 500000")
        await guest.ask("echo 1")
        assert session.device_us == 1_000_000
        guest.close()


async def test_a_guest_that_vanishes_frees_its_device_and_others_notice_nothing(database):
    async with session_world(database) as world:
        other, _ = await attach(world)
        await other.began()
        guest, session = await attach(world)
        await guest.began()
        await guest.command("sleep 600")
        guest.close()
        await until(lambda: session.over.is_set())
        assert len(await world.leases.list_leases()) == 1
        assert await other.ask("echo still here") == b"still here"
        other.close()


async def test_a_guest_that_stops_reading_loses_its_device_and_may_begin_again(database):
    async with session_world(database) as world:
        guest, session = await attach(world)
        await guest.began()
        await guest.command("flood 400")
        await workers_gone(world)
        assert session.life.state == "lost" and session.guest.received < MIB
        lost = await guest.lost()
        assert lost.resumable and "stopped reading" in lost.failure.message
        await guest.began()
        assert await guest.ask("echo here again") == b"here again"
        guest.close()
        await workers_gone(world)


async def test_a_guest_that_never_reads_again_is_closed(database, monkeypatch):
    monkeypatch.setattr("proxy.sessions.hub.GIVE_UP_US", 1_000_000)
    async with session_world(database) as world:
        guest, session = await attach(world)
        await guest.began()
        await guest.command("flood 400")
        await until(lambda: session.over.is_set())
        assert session.error.code == "session_refused" and "stopped reading" in session.error.message
        guest.close()
        await workers_gone(world)


async def test_a_guest_that_breaks_the_protocol_is_told_and_closed(database):
    async with session_world(database) as world:
        for wrong in (
            HEADER.pack(3 * MIB, Kind.COMMAND, 0, 0, 1),
            HEADER.pack(0, 99, 0, 0, 1),
            HEADER.pack(0, Kind.USAGE, 0, 0, 1),
            HEADER.pack(3, Kind.SESSION, 0, 0, 0) + b"abc",
        ):
            guest, session = await attach(world)
            await guest.began()
            await asyncio.get_running_loop().sock_sendall(guest.sock, wrong)
            ended = await guest.word()
            assert isinstance(ended, Ended) and ended.failure.code == "session_refused"
            await guest.closed()
            await session.over.wait()
        await workers_gone(world)


async def test_commands_before_begin_and_wrong_generations_end_the_session(database):
    async with session_world(database) as world:
        guest, session = await attach(world)
        await guest.command("echo 1")
        assert "before 'begin'" in (await guest.word()).failure.message
        guest, session = await attach(world)
        await guest.begin(generation=2)
        assert "the next one is 1" in (await guest.word()).failure.message
        guest, session = await attach(world)
        await guest.began()
        await guest.begin()
        assert "while the session is attached" in (await guest.word()).failure.message
        await session.over.wait()
        await workers_gone(world)


async def test_a_sequence_number_out_of_order_ends_the_session_for_good(database):
    async with session_world(database) as world:
        guest, _ = await attach(world)
        await guest.began()
        guest.number = 7
        await guest.command("echo 1")
        ended = await guest.word()
        assert isinstance(ended, Ended) and ended.failure.code == "session_refused"
        await workers_gone(world)


async def test_a_full_pool_is_waited_for_and_then_named(database):
    async with session_world(database) as world:
        holders = [await attach(world) for _ in range(2)]
        for holder, _ in holders:
            await holder.began()
        late, _ = await attach(world, start_seconds=0.3)
        await late.begin()
        failure = (await late.word()).failure
        assert failure.code == "no_device" and "all 2 slots of device (any) are taken" in failure.message
        waiting, _ = await attach(world)
        await waiting.begin()
        holders[0][0].close()
        assert (await waiting.word()).device == "box/cpu0"
        impossible, _ = await attach(world, gpu=("A100",))
        await impossible.begin()
        assert (await impossible.word()).failure.code == "does_not_fit"


async def test_uploads_are_shared_by_the_sessions_of_a_tenant_only(database):
    async with session_world(database) as world:
        guest, _ = await attach(world)
        await guest.began()
        await guest.command("keep abc")
        again, _ = await attach(world)
        await again.began()
        await guest.ask("echo written")
        assert await again.ask("contents") == b"abc"
        again.close()
        world.tenant_id = await world.registry.create_tenant("other")
        other, _ = await attach(world)
        await other.began()
        assert await other.ask("contents") == b""


async def test_a_busy_executor_makes_its_guest_wait_and_nothing_pile_up(database):
    async with session_world(database) as world:
        guest, session = await attach(world)
        await guest.began()
        await guest.command("until told")
        flood = asyncio.create_task(_flood(guest, 64))
        await until(lambda: session.device.full)
        other, _ = await attach(world)
        await other.began()
        assert await other.ask("echo at once") == b"at once"
        assert session.guest.received < 16 * MIB
        assert not flood.done() and not session.ended
        await other.command("keep told")
        await flood
        assert [(await guest.answer()).body for _ in range(64)] == [str(MIB).encode()] * 64


async def _flood(guest, count):
    for _ in range(count):
        await guest.command(b"size " + b"x" * MIB)


async def test_a_guest_that_vanishes_behind_a_full_pipe_is_noticed(database):
    async with session_world(database) as world:
        guest, session = await attach(world)
        await guest.began()
        await guest.command("until told")
        flood = asyncio.create_task(_flood(guest, 64))
        await until(lambda: session.device.full)
        flood.cancel()
        guest.close()
        await until(lambda: session.over.is_set())
        await workers_gone(world)
        assert await world.leases.list_leases(None) == [], "its slot is free again"


async def test_rows_tell_how_sessions_are_and_old_ones_are_closed_after_a_proxy_died(database):
    async with session_world(database) as world:
        guest, session = await attach(world)
        await guest.began()
        await guest.command("use 1234")
        await guest.ask("echo 1")
        store = SessionStore(database)

        async def row():
            rows = await store.list_sessions(world.tenant_id)  # written a moment later than it is so
            return next((found for found in rows if found.device_us == 1234), None)

        found = await until(row)
        assert (found.id, found.state, found.device_name) == (session.id, "attached", "box/cpu0")
        assert found.bytes_up > 0 and found.proxy_name == "box/proxy"
        await store.close_old(1, 99)  # the proxy's next life
        assert await store.list_sessions(world.tenant_id) == []
        (found,) = await store.list_sessions(world.tenant_id, ended=True)
        assert (found.state, found.error_code) == ("ended", "session_lost")
        guest.close()
        await session.over.wait()


async def test_what_a_killed_proxy_had_not_billed_is_billed_by_its_next_life_once(database):
    async with session_world(database) as world:
        guest, session = await attach(world)
        await guest.began()
        await guest.command("use 1234")
        await guest.ask("echo 1")
        store = SessionStore(database)

        async def owed():
            return await store.unbilled_of_old(1, 99)

        found = await until(owed)
        assert [(each.device_us, each.cost_nano) for each in found] == [(1234, 1234)]
        for _ in range(2):
            await Biller(CallStore(database), 1, SystemClock()).write_for_dead(found)
        await guest.end()  # the earlier life was only slow: its own bill has the same id
        await session.over.wait()
        await until(lambda: not world.proxy.sessions.sessions)
        (row,) = await world.ledger.usage(world.tenant_id)
        assert (row.calls, row.device_us, row.amount_nano) == (1, 1234, 1234)
        assert (await world.ledger.check()).clean


async def test_a_session_that_goes_on_for_one_lost_with_its_proxy_repeats_it_for_free_and_once(database):
    async with session_world(database) as world:
        guest, lost = await attach(world)
        await guest.began()
        await guest.command("use 500000")
        await guest.ask("echo 1")
        store = SessionStore(database)

        async def written():
            return any(row.device_us == 500_000 for row in await store.list_sessions())

        await until(written)
        assert await _time_billed(world, lost) == 670_000, "its proxy lives: the program only hung up"
        await ProxyStore(database).register("box/proxy", "box", "host")  # its next life
        assert await _time_billed(world, lost) == 70_000
        assert await _time_billed(world, lost) == 670_000, "once"
        guest.close()
        await lost.over.wait()


async def _time_billed(world, lost):
    """Of a program that repeats what the lost session had done and goes on."""
    guest, session = await attach(world, resumes=lost.id)
    await guest.began()
    await guest.command("use 600000")
    await guest.ask("echo 2")
    await guest.replayed()
    await guest.command("use 70000")
    await guest.ask("echo 3")
    await until(lambda: world.proxy.sessions._written.get(session.id, None) is not None)
    guest.close()
    await session.over.wait()
    await until(lambda: session.id not in world.proxy.sessions.sessions)
    return session.device_us
