"""What tests of sessions share: a world whose devices run the small executor, and a guest on a raw socket."""

import asyncio
import contextlib
import socket
from pathlib import Path

from fabric_world import DEADLINE, world_of

from dgsf.fabric.device_server import ServerOptions
from dgsf.wire.frames import Frame, FrameReader, Kind, encode_frame
from dgsf.wire.messages import encode
from dgsf.wire.session import Began, Begin, End, Lost, Replayed, read_from_proxy
from proxy.sessions.owner import SessionOwner

HERE = str(Path(__file__).parent)
EXECUTORS = ServerOptions(entry="session_bodies:serve", preload=(), import_paths=(HERE,))
MIB = 1024 * 1024


class Guest:
    """A guest by hand: numbers its commands, reads one frame at a time."""

    def __init__(self, sock):
        sock.setblocking(False)
        self.sock = sock
        self.number = 0
        self.generation = 0
        self._reader = FrameReader()
        self._ready = []

    async def send(self, kind, stream, body=b"", flags=0):
        await asyncio.get_running_loop().sock_sendall(self.sock, encode_frame(kind, stream, body, flags))

    async def begin(self, generation=None):
        self.generation = self.generation + 1 if generation is None else generation
        self.number = 0
        await self.send(Kind.SESSION, 0, encode(Begin("torch", self.generation)))

    async def began(self):
        await self.begin()
        word = await self.word()
        assert isinstance(word, Began), word
        return word

    async def command(self, text):
        self.number += 1
        body = text if isinstance(text, bytes) else text.encode()
        await self.send(Kind.COMMAND, self.number, body)

    async def ask(self, text):
        await self.command(text)
        return (await self.answer()).body

    async def replayed(self):
        await self.send(Kind.SESSION, 0, encode(Replayed(self.generation)))

    async def end(self):
        await self.send(Kind.SESSION, 0, encode(End()))

    async def frame(self) -> Frame:
        async with asyncio.timeout(DEADLINE):
            while not self._ready:
                data = await asyncio.get_running_loop().sock_recv(self.sock, 1 << 18)
                if not data:
                    raise EOFError
                self._ready += self._reader.feed(data)
        return self._ready.pop(0)

    async def answer(self):
        frame = await self.frame()
        assert frame.kind == Kind.ANSWER, (frame, frame.kind == Kind.SESSION and read_from_proxy(frame.body))
        return frame

    async def word(self):
        frame = await self.frame()
        assert frame.kind == Kind.SESSION, frame
        return read_from_proxy(frame.body)

    async def lost(self):
        """The word that the device is lost; answers before it are skipped."""
        while True:
            frame = await self.frame()
            if frame.kind == Kind.SESSION:
                word = read_from_proxy(frame.body)
                assert isinstance(word, Lost), word
                return word

    async def closed(self):
        with contextlib.suppress(ConnectionError):
            try:
                while True:
                    await self.frame()
            except EOFError:
                return

    def close(self):
        self.sock.close()


def owner_of(world, **changes):
    values = {"version_id": None, "gpu": ("any",), "memory_bytes": 64 * MIB, "start_seconds": DEADLINE} | changes
    return SessionOwner(tenant_id=world.tenant_id, **values)


async def attach(world, **changes):
    """A guest and its session, not begun."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    theirs.setblocking(False)
    session = await world.proxy.sessions.adopt(theirs, owner_of(world, **changes))
    guest = Guest(ours)
    world.guests.append(guest)
    return guest, session


@contextlib.asynccontextmanager
async def session_world(database, devices="cpu:1:slots=2", **changes):
    async with world_of(database, devices="", **changes) as world:
        world.guests = []
        try:
            await world.add_device(devices, EXECUTORS)
            yield world
        finally:
            for guest in world.guests:
                guest.close()


def worker_of(world, session):
    """The executor's record in its device server."""
    post = session.device.post
    return world.servers[post.device.name]._table.workers[post.worker_id]
