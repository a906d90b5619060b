"""The second connection of a worker on a function host: handed over once, to the right worker only."""

import asyncio

import pytest
from device_kit import _LENGTH as LENGTH
from device_kit import DEADLINE, MIB, running_server

from dgsf.core.devices import DeviceSpec
from dgsf.errors import LeaseLost
from dgsf.wire.frames import Kind, encode_frame
from dgsf.wire.handshake import read_exactly, read_frame
from dgsf.wire.link import connect_socket, host_id
from dgsf.wire.messages import Attached, Join, encode, reader

HOST = DeviceSpec("host", "host", 0, 1024 * MIB, 2, options={"threads": 1})
_read = reader(Attached)


async def join(pool, worker_id, epoch=1, incarnation=1, tcp=False):
    sock = await connect_socket(pool.address, pool.secret, here=host_id(), tcp=tcp)
    pool.opened.append(sock)
    frame = encode_frame(Kind.JOIN, 0, encode(Join(worker_id, epoch, incarnation)))
    await asyncio.get_running_loop().sock_sendall(sock, frame)
    answer = _read((await read_frame(sock, DEADLINE)).body)
    if answer.failure is not None:
        raise answer.failure.error()
    return sock


@pytest.mark.parametrize("tcp", [False, True])
async def test_a_worker_of_a_function_host_gets_a_second_connection(tmp_path, tcp):
    async with running_server(tmp_path, spec=HOST, entry="worker_bodies:echoes") as pool:
        worker = await pool.attach()
        second = await join(pool, worker.id, tcp=tcp)
        await asyncio.get_running_loop().sock_sendall(second, LENGTH.pack(5) + b"hello")
        async with asyncio.timeout(DEADLINE):
            assert await read_exactly(second, LENGTH.size + 5) == LENGTH.pack(5) + b"HELLO"


async def test_it_is_given_once_and_only_under_the_workers_own_lease(tmp_path):
    async with running_server(tmp_path, spec=HOST) as pool:
        worker = await pool.attach(epoch=7)
        for wrong in ((worker.id + 1, 7, 1), (worker.id, 6, 1), (worker.id, 7, 2)):
            with pytest.raises(LeaseLost, match="there is no worker"):
                await join(pool, *wrong)
        await join(pool, worker.id, 7)
        with pytest.raises(LeaseLost, match="does not take a session"):
            await join(pool, worker.id, 7)


async def test_a_worker_beside_a_device_gets_none(tmp_path):
    async with running_server(tmp_path) as pool:
        worker = await pool.attach()
        with pytest.raises(LeaseLost, match="does not take a session"):
            await join(pool, worker.id)
