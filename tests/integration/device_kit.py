"""What tests of device servers share: a server on a temporary folder, and a client that attaches workers."""

import asyncio
import contextlib
import pickle
import secrets
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path

import cloudpickle

from dgsf.core.devices import DeviceSpec
from dgsf.fabric.control import DeviceControl
from dgsf.fabric.device_server import DeviceServer, ServerOptions
from dgsf.wire.frames import Kind, encode_frame
from dgsf.wire.handshake import read_exactly, read_frame
from dgsf.wire.link import connect_socket, host_id
from dgsf.wire.messages import Attach, Attached, Watch, encode, reader
from dgsf.wire.shared import SharedArea

HERE = str(Path(__file__).parent)
DEADLINE = 60.0
MIB = 1024 * 1024
_LENGTH = struct.Struct("<I")
_read_attached = reader(Attached)


def by_value(module_name):
    """Functions of this test module travel whole: no worker can import it."""
    cloudpickle.register_pickle_by_value(sys.modules[module_name])


@dataclass
class Pool:
    """A running server, its address and its secret."""

    server: DeviceServer
    address: object
    secret: bytes
    shared: Path
    opened: list = field(default_factory=list)

    async def attach(self, *, slot=0, epoch=1, memory=256 * MIB, tcp=False, **changes):
        """A worker, or the error that the server gave."""
        sock = await connect_socket(self.address, self.secret, here=host_id(), tcp=tcp)
        self.opened.append(sock)
        fields = {"holder": "test", "incarnation": 1, "tenant_id": 1, "version_id": 1, "network": False} | changes
        attach = Attach(slot=slot, epoch=epoch, memory_bytes=memory, **fields)
        await asyncio.get_running_loop().sock_sendall(sock, encode_frame(Kind.ATTACH, 0, encode(attach)))
        frame = await read_frame(sock, DEADLINE)
        attached = _read_attached(frame.body)
        if attached.failure is not None:
            raise attached.failure.error()
        return TestWorker(sock, attached)

    async def control(self, holder="test", tcp=False):
        control = await DeviceControl.open(self.address, self.secret, here=host_id(), tcp=tcp)
        self.opened.append(control)
        exits = asyncio.Queue()
        control.on_exit = exits.put_nowait
        await control.request(Watch(holder))
        return control, exits


class TestWorker:
    """The proxy's end of a worker's connection."""

    __test__ = False

    def __init__(self, sock, attached):
        self.sock = sock
        self.id = attached.worker_id
        self.pid = attached.pid
        self.shared_dir = attached.shared_dir

    async def send(self, function, *args):
        data = cloudpickle.dumps((function, args))
        await asyncio.get_running_loop().sock_sendall(self.sock, _LENGTH.pack(len(data)) + data)

    async def block(self):
        async with asyncio.timeout(DEADLINE):
            head = await read_exactly(self.sock, _LENGTH.size)
            return await read_exactly(self.sock, _LENGTH.unpack(head)[0])

    async def run(self, function, *args):
        """What the function returns in the worker; AssertionError with its traceback if it raised."""
        await self.send(function, *args)
        fine, value = pickle.loads(await self.block())
        assert fine, value
        return value

    def close(self):
        self.sock.close()


@contextlib.asynccontextmanager
async def running_server(run_dir, *, slots=4, entry="worker_bodies:serve", preload=("numpy", "cloudpickle"), **options):
    secret = secrets.token_bytes(32)
    shared_name = f"dgsf-test-{secrets.token_hex(6)}"
    spec = options.pop("spec", None) or DeviceSpec("cpu", "cpu", 0, 1024 * MIB, slots, options={"threads": 1})
    given = ServerOptions(entry=entry, preload=preload, import_paths=(HERE,), **options)
    server = DeviceServer(
        spec, name="box/cpu0", incarnation=0, secret=secret, run_dir=run_dir, shared_name=shared_name, options=given
    )
    try:
        address = await server.start()
        await server.set_incarnation(1)
        pool = Pool(server, address, secret, Path("/dev/shm") / shared_name)
        yield pool
        for each in pool.opened:
            each.close()
    finally:
        await server.stop()
        SharedArea(shared_name).remove()


async def until(condition, what="the state waited for"):
    """Wait for a state, not for a time."""
    async with asyncio.timeout(DEADLINE):
        while not (found := condition()):
            await asyncio.sleep(0.01)
    return found


def alive(pid):
    """Whether a process exists and is not only waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid):
    found = [pid]
    for each in found:
        for task in Path(f"/proc/{each}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += [int(child) for child in task.read_text().split()]
    return found[1:]
