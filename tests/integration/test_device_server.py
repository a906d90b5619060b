"""A device server with real zygotes, workers, sockets and leases."""

import asyncio
import contextlib
import os
import signal
import socket

import pytest
from device_kit import DEADLINE, MIB, alive, by_value, descendants, running_server, until

from dgsf.errors import ConnectionLost, DoesNotFit, LeaseLost, ProtocolError
from dgsf.fabric.control import DeviceControl
from dgsf.fabric.spec import Stop
from dgsf.wire.handshake import MAGIC, NONCE_BYTES, read_exactly
from dgsf.wire.link import connect_socket, host_id
from dgsf.wire.messages import Interrupt, Kill, Reap, Status, reader

by_value(__name__)


@pytest.fixture
async def pool(tmp_path):
    async with running_server(tmp_path) as pool:
        yield pool


async def closed_by_the_other_side(sock):
    with contextlib.suppress(ConnectionLost):
        while True:
            await read_exactly(sock, 1)


async def next_exit(exits):
    async with asyncio.timeout(DEADLINE):
        return await exits.get()


# --- attaching
@pytest.mark.parametrize("tcp", [False, True])
async def test_an_attached_connection_reaches_a_worker(pool, tcp):
    worker = await pool.attach(tcp=tcp)
    assert await worker.run(lambda x: x * 2, 21) == 42
    assert alive(worker.pid)
    worker.close()


async def test_two_workers_run_side_by_side_and_apart(pool):
    one, two = await asyncio.gather(pool.attach(slot=0), pool.attach(slot=1))
    assert one.id != two.id and one.pid != two.pid and one.shared_dir != two.shared_dir
    assert await one.run(lambda: "one") == "one"
    assert await two.run(lambda: "two") == "two"


async def test_workers_do_not_repeat_each_others_random_numbers(pool):
    def draw():
        import random

        import numpy

        return random.random(), float(numpy.random.rand())

    drawn = [await (await pool.attach(slot=slot)).run(draw) for slot in range(3)]
    assert len({first for first, _ in drawn}) == 3 and len({second for _, second in drawn}) == 3


async def test_the_shared_folder_is_the_same_on_both_sides(pool):
    def echo_file():
        with open("/dgsf/shared/question") as file:
            text = file.read()
        with open("/dgsf/shared/answer", "w") as file:
            file.write(text.upper())

    worker = await pool.attach()
    with open(os.path.join(worker.shared_dir, "question"), "w") as file:
        file.write("hello")
    await worker.run(echo_file)
    with open(os.path.join(worker.shared_dir, "answer")) as file:
        assert file.read() == "HELLO"


async def test_another_incarnation_is_refused(pool):
    with pytest.raises(LeaseLost, match="incarnation 1"):
        await pool.attach(incarnation=2)


async def test_a_lower_epoch_is_refused_and_a_higher_one_takes_over(pool):
    control, exits = await pool.control()
    first = await pool.attach(epoch=5)
    with pytest.raises(LeaseLost, match="epoch 4"):
        await pool.attach(epoch=4)
    with pytest.raises(LeaseLost, match="already"):
        await pool.attach(epoch=5)
    second = await pool.attach(epoch=6)
    notice = await next_exit(exits)
    assert (notice.worker_id, notice.cause, notice.reason) == (first.id, "killed", "reaped")
    assert not alive(first.pid) and alive(second.pid)
    control.close()


async def test_the_same_epoch_may_attach_again_once_its_worker_is_gone(pool):
    _, exits = await pool.control()
    first = await pool.attach(epoch=3)
    first.close()
    assert (await next_exit(exits)).cause == "exited"
    second = await pool.attach(epoch=3)
    assert await second.run(lambda: 1) == 1


async def test_an_unknown_slot_or_too_much_memory_does_not_fit(pool):
    with pytest.raises(DoesNotFit, match="has 4"):
        await pool.attach(slot=4)
    with pytest.raises(DoesNotFit, match="do not fit"):
        await pool.attach(memory=2048 * MIB)


async def test_a_worker_that_fails_to_serve_is_told_as_an_exit(tmp_path):
    async with running_server(tmp_path, entry="worker_bodies:serve_badly") as pool:
        _, exits = await pool.control()
        worker = await pool.attach()
        notice = await next_exit(exits)
        assert (notice.worker_id, notice.cause, notice.exit_code) == (worker.id, "exited", 7)


# --- ends
def crash_by_segfault():
    import ctypes

    ctypes.string_at(0)


def crash_by_exit():
    import os

    os._exit(3)


def crash_by_kill():
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


def crash_by_abort():
    import os

    os.abort()


@pytest.mark.parametrize(
    ("crash", "exit_code", "signals"),
    [
        (crash_by_segfault, 0, {signal.SIGSEGV}),
        (crash_by_exit, 3, {0}),
        (crash_by_kill, 0, {signal.SIGKILL}),
        (crash_by_abort, 0, {signal.SIGABRT, signal.SIGSEGV}),
    ],
)
async def test_a_crash_is_told_to_its_holder_and_hurts_no_one_else(pool, crash, exit_code, signals):
    _, exits = await pool.control()
    victim, other = await pool.attach(slot=0), await pool.attach(slot=1)
    await victim.send(crash)
    notice = await next_exit(exits)
    assert (notice.worker_id, notice.slot, notice.epoch, notice.cause) == (victim.id, 0, 1, "exited")
    assert notice.exit_code == exit_code and notice.signal in signals
    with pytest.raises(ConnectionLost):
        await victim.block()
    assert await other.run(lambda: "well") == "well"
    await until(lambda: not os.path.exists(victim.shared_dir))


async def test_what_a_worker_started_ends_with_it(pool):
    def start_a_child():
        import subprocess

        subprocess.Popen(["sleep", "1000"], start_new_session=True)

    worker = await pool.attach()
    await worker.run(start_a_child)
    (child,) = await until(lambda: descendants(worker.pid))
    worker.close()
    await until(lambda: not alive(child))


async def test_memory_that_no_limit_counts_is_watched(pool):
    def hoard():
        import mmap
        import time

        space = mmap.mmap(-1, 400 << 20)  # shared, so the limit on private memory does not see it
        for at in range(0, len(space), 4096):
            space[at] = 1
        time.sleep(1000)

    _, exits = await pool.control()
    worker = await pool.attach(memory=64 * MIB)
    await worker.send(hoard)
    notice = await next_exit(exits)
    assert (notice.worker_id, notice.cause, notice.reason) == (worker.id, "killed", "memory")


async def test_too_many_files_in_the_shared_folder_are_too_much_memory(pool):
    def litter():
        import time

        for number in range(5000):
            open(f"/dgsf/shared/{number}", "w").close()
        time.sleep(1000)

    _, exits = await pool.control()
    worker = await pool.attach()
    await worker.send(litter)
    assert (await next_exit(exits)).reason == "memory"
    await until(lambda: not os.path.exists(worker.shared_dir))


# --- control
async def test_kill_answers_when_the_worker_is_reaped(pool):
    control, exits = await pool.control()
    worker = await pool.attach()
    assert (await control.request(Kill(worker.id, "timeout"))).ok
    assert not alive(worker.pid)
    notice = await next_exit(exits)
    assert (notice.cause, notice.reason) == ("killed", "timeout")
    assert (await control.request(Kill(worker.id, "timeout"))).ok  # gone already: as wished


async def test_reap_ends_the_worker_and_refuses_its_epoch_for_ever(pool):
    control, exits = await pool.control()
    worker = await pool.attach(epoch=7)
    assert (await control.request(Reap(0, 6))).ok
    assert alive(worker.pid)  # a later epoch than the reaped one
    assert (await control.request(Reap(0, 7))).ok
    assert not alive(worker.pid)
    assert (await next_exit(exits)).reason == "reaped"
    with pytest.raises(LeaseLost):
        await pool.attach(epoch=7)
    assert await (await pool.attach(epoch=8)).run(lambda: 8) == 8


async def test_reap_also_stops_a_worker_that_is_just_starting(pool):
    control, _ = await pool.control()
    attaching = asyncio.create_task(pool.attach(epoch=1))
    await until(lambda: list(pool.shared.glob("box-cpu0-*")) or attaching.done())
    await control.request(Reap(0, 1))
    outcome = (await asyncio.gather(attaching, return_exceptions=True))[0]
    if not isinstance(outcome, LeaseLost):  # it was through before the reaping: then it is dead now
        assert not alive(outcome.pid)
    assert (await control.request(Status())).workers == 0


async def test_interrupt_sends_the_call_to_the_worker_and_signals_it(tmp_path):
    async with running_server(tmp_path, entry="worker_bodies:listens") as pool:
        control, _ = await pool.control()
        worker = await pool.attach()
        assert await worker.block() == b"listening"
        assert (await control.request(Interrupt(worker.id, b"call", "cancel", 1000))).ok
        assert reader(Stop)(await worker.block()) == Stop(b"call", "cancel")
        assert alive(worker.pid)
        assert not (await control.request(Interrupt(999, b"call", "cancel", 1000))).ok


async def test_interrupt_without_grace_kills(pool):
    control, exits = await pool.control()
    worker = await pool.attach()
    await control.request(Interrupt(worker.id, b"call", "timeout", 0))
    assert not alive(worker.pid)
    assert (await next_exit(exits)).reason == "timeout"


async def test_notices_go_only_to_those_who_watch_that_holder(pool):
    _, mine = await pool.control(holder="test")
    _, others = await pool.control(holder="someone else")
    (await pool.attach()).close()
    await next_exit(mine)
    assert others.empty()


async def test_status_tells_workers_and_incarnation(pool):
    control, _ = await pool.control(tcp=True)
    health = await control.request(Status())
    assert (health.incarnation, health.ready, health.workers, health.detail) == (1, True, 0, "")
    await pool.attach()
    assert (await control.request(Status())).workers == 1


async def test_a_new_incarnation_ends_the_workers_of_the_old_one(pool):
    worker = await pool.attach(epoch=9)
    await pool.server.set_incarnation(2)
    assert not alive(worker.pid)
    assert await (await pool.attach(incarnation=2, epoch=1)).run(lambda: 2) == 2


# --- strangers
async def test_a_wrong_secret_is_refused(pool):
    with pytest.raises(ProtocolError, match="secret"):
        await DeviceControl.open(pool.address, b"wrong" * 8, here=host_id(), tcp=False)
    assert (await pool.server.health()).ready


async def test_garbage_closes_only_its_own_connection(pool):
    loop = asyncio.get_running_loop()
    with socket.create_connection((pool.address.tcp_host, pool.address.tcp_port)) as stranger:
        stranger.setblocking(False)
        await loop.sock_sendall(stranger, b"GET / HTTP/1.1\r\n\r\n" * 100)
        async with asyncio.timeout(DEADLINE):
            with pytest.raises(ConnectionLost):
                await read_exactly(stranger, 1)
    assert await (await pool.attach()).run(lambda: 1) == 1


async def test_half_a_handshake_holds_up_nobody(pool):
    loop = asyncio.get_running_loop()
    strangers = []
    for _ in range(200):  # more than may be under way at once
        stranger = socket.socket(socket.AF_UNIX)
        stranger.setblocking(False)
        await loop.sock_connect(stranger, pool.address.unix_path)
        await loop.sock_sendall(stranger, (MAGIC + bytes(NONCE_BYTES))[:20])
        strangers.append(stranger)
    assert await (await pool.attach()).run(lambda: 1) == 1
    for stranger in strangers:
        stranger.close()


async def test_a_frame_that_is_no_request_closes_the_connection(pool):
    loop = asyncio.get_running_loop()
    for frame in (bytes(12), b"\xff" * 12, b"\x05\x00\x00\x00\x0c\x00\x00\x00\x00\x00\x00\x00hello"):
        sock = await connect_socket(pool.address, pool.secret, here=host_id(), tcp=False)
        await loop.sock_sendall(sock, frame)
        async with asyncio.timeout(DEADLINE):
            await closed_by_the_other_side(sock)
        sock.close()
    assert (await pool.server.health()).ready


# --- the zygote and the end of all
@pytest.mark.parametrize("victim", ["keeper", "zygote"])
async def test_a_killed_zygote_is_replaced_and_its_workers_are_told(pool, victim):
    control, exits = await pool.control()
    worker = await pool.attach()
    keeper, zygote = [pid for pid in descendants(os.getpid()) if worker.pid in descendants(pid)]
    os.kill(keeper if victim == "keeper" else zygote, signal.SIGKILL)
    notice = await next_exit(exits)
    assert (notice.worker_id, notice.cause, notice.reason) == (worker.id, "killed", "zygote")
    assert not alive(worker.pid)

    async def ready():
        health = await control.request(Status())
        assert health.ready or "zygote" in health.detail
        return health.ready

    async with asyncio.timeout(DEADLINE):
        while not await ready():
            await asyncio.sleep(0.02)
    assert await (await pool.attach(epoch=2)).run(lambda: "again") == "again"


async def test_stop_leaves_no_process_no_socket_and_no_file(tmp_path):
    async with running_server(tmp_path) as pool:
        workers = [await pool.attach(slot=slot) for slot in range(3)]
        started = [pid for pid in descendants(os.getpid()) if any(w.pid in descendants(pid) for w in workers)]
        started += [worker.pid for worker in workers]
        assert len(started) >= 5  # keeper, zygote, workers
        await pool.server.stop()
        assert not [pid for pid in started if alive(pid)]
        assert not os.path.exists(pool.address.unix_path)
        assert not list(pool.shared.glob("box-*"))
