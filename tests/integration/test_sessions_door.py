"""Guests come in by tickets: good ones once, others not at all."""

import asyncio
import itertools
import socket
import time
from pathlib import Path
from uuid import uuid4

import pytest
from fabric_world import SECRET, until
from session_kit import MIB, Guest, session_world

from dgsf.clock import SystemClock
from dgsf.errors import DgsfError, SessionRefused
from dgsf.sdk.doorway import Ticket, connect
from dgsf.wire.frames import HEADER
from dgsf.wire.session import Ended
from dgsf.wire.tickets import Claims, accept, issue, knock, session_key
from proxy.sessions.door import SessionDoor
from proxy.sessions.guest_link import STALL_US, GuestLink


def claims(world, **changes):
    given = {"gpu": ("any",), "memory_bytes": 64 * MIB, "start_seconds": 60.0, "expires": time.time() + 60} | changes
    return Claims(uuid4().bytes, world.tenant_id, **given)


def ticket(found, address, *, key=None, secret=SECRET, far=False):
    path, host, port = address
    chosen = session_key(found.session, SECRET) if key is None else key
    return Ticket("s", issue(found, secret), chosen, "" if far else path, (host, port))


async def opened(door, world):
    address = door.listen("127.0.0.1", 0)
    door.start(world.proxy.sessions)
    return address


async def guest_of(world, given):
    guest = Guest(await asyncio.to_thread(connect, given))
    world.guests.append(guest)
    return guest


def test_a_ticket_says_what_it_was_made_for_and_nothing_else_is_believed():
    good = Claims(b"s" * 16, 7, ("A100", "any"), 5, 2.0, 1000.0)
    text = issue(good, b"secret")
    assert accept(text, b"secret", 999.0) == good
    with pytest.raises(SessionRefused, match="expired"):
        accept(text, b"secret", 1001.0)
    for wrong in (text[:-1], bytes([text[0] ^ 1]) + text[1:], b"", b"x" * 100, text + b"x"):
        with pytest.raises(SessionRefused, match="not a ticket"):
            accept(wrong, b"secret", 999.0)
    with pytest.raises(SessionRefused, match="not a ticket"):
        accept(text, b"other", 999.0)


@pytest.mark.parametrize("far", [False, True])
async def test_a_good_ticket_opens_a_session_once(database, tmp_path: Path, far):
    async with session_world(database) as world:
        door = SessionDoor(SECRET, SystemClock(), tmp_path / "s.sock")
        try:
            given = ticket(claims(world), await opened(door, world), far=far)
            guest = await guest_of(world, given)
            await guest.began()
            assert await guest.ask("echo hello") == b"hello"
            again = await guest_of(world, given)
            ended = await again.word()
            assert isinstance(ended, Ended) and "used already" in ended.failure.message
            assert await guest.ask("echo still") == b"still"
        finally:
            await door.stop()


async def test_bad_tickets_keys_and_noise_are_refused_and_good_guests_still_come_in(database, tmp_path: Path):
    async with session_world(database) as world:
        door = SessionDoor(SECRET, SystemClock(), tmp_path / "s.sock")
        try:
            address = await opened(door, world)
            for wrong in (
                ticket(claims(world), address, secret=b"another cluster"),
                ticket(claims(world), address, key=b"k" * 32),
                ticket(claims(world, expires=1.0), address),
            ):
                with pytest.raises(DgsfError, match="did not open"):
                    await asyncio.to_thread(connect, wrong)
            for noise in (b"GET / HTTP/1.1\r\n\r\n" * 2, knock(b"x" * 5000), b"DGSF"):
                with socket.create_connection(address[1:]) as sock:
                    sock.sendall(noise)
            guest = await guest_of(world, ticket(claims(world), address))
            await guest.began()
            assert len(world.proxy.sessions.sessions) == 1
        finally:
            await door.stop()


async def test_a_guest_over_tcp_hears_why_it_was_closed_even_while_it_still_sends(database, tmp_path: Path):
    async with session_world(database) as world:
        door = SessionDoor(SECRET, SystemClock(), tmp_path / "s.sock")
        try:
            guest = await guest_of(world, ticket(claims(world), await opened(door, world), far=True))
            await guest.began()
            noise = HEADER.pack(0, 99, 0, 0, 1) + b"x" * MIB
            await asyncio.get_running_loop().sock_sendall(guest.sock, noise)
            ended = await guest.word()
            assert isinstance(ended, Ended) and ended.failure.code == "session_refused"
            await guest.closed()
        finally:
            await door.stop()


class Ears:
    """A session that only listens."""

    def guest_full(self, full):
        pass

    def guest_lost(self, error):
        pass


async def test_a_guest_that_reads_slowly_has_not_stopped_reading():
    """However little it takes at a time: what the kernels have between them counts as not taken yet."""
    loop, link = asyncio.get_running_loop(), GuestLink(Ears())
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as guest:
        theirs, _ = server.accept()
        theirs.setblocking(False)
        guest.setblocking(False)
        transport, _ = await loop.create_connection(lambda: link, sock=theirs)
        link.pass_on([bytes(32 * MIB)], 32 * MIB)
        now = 0
        for _ in range(10):
            assert link.stuck_us(now) < STALL_US
            before, now = link.progress, now + STALL_US - 1
            while link.progress == before:
                await loop.sock_recv(guest, 1024)
        assert link.stuck_us(now) < STALL_US and link.waiting
        later = itertools.count(now, STALL_US)
        await until(lambda: link.stuck_us(next(later)) >= STALL_US)
        transport.abort()
        await link.gone.wait()
