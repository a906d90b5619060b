"""The real worker in the real sandbox: a function's code, calls, results, large payloads, torch, stops."""

import asyncio
import json
import os

import pytest
import pytest_asyncio
from device_kit import DEADLINE, MIB, running_server

from dgsf.fabric.zygote_client import PRELOAD, WORKER_ENTRY
from dgsf.sdk.bundle import pack
from dgsf.wire import shared
from dgsf.wire.frames import Kind, encode_frame
from dgsf.wire.handshake import read_frame
from dgsf.wire.messages import Carrier, Codec, Interrupt, Load, Loaded, Ref, Run, RunEnd, join, reader, split

pytestmark = pytest.mark.asyncio(loop_scope="module")
INLINE = 64 * 1024


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    async with running_server(folder, slots=8, entry=WORKER_ENTRY, preload=PRELOAD) as pool:
        yield pool


class Caller:
    """Speaks to one worker as a proxy does."""

    def __init__(self, worker):
        self.worker = worker
        self.stream = 0

    async def send(self, kind, body):
        self.stream += 1
        await asyncio.get_running_loop().sock_sendall(self.worker.sock, encode_frame(kind, self.stream, body))

    async def load(self, function):
        code = pack(function).code
        await self.send(Kind.LOAD, join(Load(1, Ref(0, Carrier.inline, len(code)), INLINE, 64 * MIB), code))
        loaded = reader(Loaded)((await read_frame(self.worker.sock, DEADLINE)).body)
        assert loaded.failure is None, loaded.failure

    async def begin(self, ref, data=b"", reply=Codec.json, call=b"c" * 16):
        await self.send(Kind.OPEN, join(Run(call, 1, 1, reply, ref), data))

    async def end(self):
        frame = await read_frame(self.worker.sock, DEADLINE)
        assert frame.kind == Kind.END
        return split(frame.body, reader(RunEnd))

    async def call(self, **arguments):
        data = json.dumps(arguments).encode()
        await self.begin(Ref(Codec.json, Carrier.inline, len(data)), data)
        end, inline = await self.end()
        assert end.failure is None, end.failure
        return json.loads(inline)


async def caller(pool, slot, function, memory=256 * MIB):
    made = Caller(await pool.attach(slot=slot, memory=memory))
    await made.load(function)
    return made


async def test_a_function_is_loaded_and_called(pool):
    def square(x):
        return {"square": x * x}

    made = await caller(pool, 0, square)
    assert [await made.call(x=n) for n in range(3)] == [{"square": 0}, {"square": 1}, {"square": 4}]


async def test_torch_works_in_a_fork_with_threads_and_autograd(pool):
    def learn(size):
        import torch

        torch.set_num_threads(2)
        layer = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten())
        loss = layer(torch.randn(4, 3, size, size)).square().mean()
        loss.backward()
        product = torch.randn(400, 400) @ torch.randn(400, 400)
        return [float(loss) >= 0, list(product.shape), layer[0].weight.grad is not None]

    made = await caller(pool, 1, learn, memory=768 * MIB)
    assert await made.call(size=24) == [True, [400, 400], True]


async def test_large_payloads_pass_through_shared_memory(pool):
    def flip(data):
        return data[::-1]

    made = await caller(pool, 2, flip)
    area = shared.SharedArea(pool.shared.name)
    descriptor, path = area.new_file()
    body = os.urandom(5 * MIB)
    with open(descriptor, "wb") as file:
        file.write(body)
    name = shared.lend(path, made.worker.shared_dir)
    await made.begin(Ref(Codec.raw, Carrier.shared, len(body), name))
    end, _ = await made.end()
    assert end.failure is None and end.payload.carrier == Carrier.shared
    result = area.take(made.worker.shared_dir, end.payload.name, end.payload.size, 64 * MIB)
    with open(result, "rb") as file:
        assert file.read() == body[::-1]
    for used in (path, result):
        shared.discard(used)


async def test_out_of_memory_fails_the_call_and_the_worker_goes_on(pool):
    def hoard(size):
        return len(bytearray(size))

    made = await caller(pool, 3, hoard, memory=64 * MIB)
    data = json.dumps({"size": 1 << 30}).encode()
    await made.begin(Ref(Codec.json, Carrier.inline, len(data)), data)
    end, _ = await made.end()
    assert end.failure.code == "out_of_memory"
    assert await made.call(size=1000) == 1000


async def test_an_interrupt_stops_the_call_and_leaves_the_worker(pool):
    def spin(forever):
        while forever:
            pass
        return "free"

    made = await caller(pool, 4, spin)
    control, exits = await pool.control()
    data = json.dumps({"forever": True}).encode()
    await made.begin(Ref(Codec.json, Carrier.inline, len(data)), data, call=b"s" * 16)
    ending = asyncio.create_task(made.end())
    async with asyncio.timeout(DEADLINE):
        while not ending.done():  # until it has really begun, a stop finds nothing to stop
            await control.request(Interrupt(made.worker.id, b"s" * 16, "timeout", 1000))
            await asyncio.wait({ending}, timeout=0.05)
    end, _ = await ending
    assert end.failure.code == "timed_out"
    assert await made.call(forever=False) == "free"
    assert exits.empty()


async def test_a_worker_ends_when_nobody_holds_its_connection(pool):
    made = await caller(pool, 5, lambda: 1)
    _, exits = await pool.control()
    made.worker.close()
    async with asyncio.timeout(DEADLINE):
        notice = await exits.get()
    assert (notice.worker_id, notice.cause, notice.exit_code) == (made.worker.id, "exited", 0)
