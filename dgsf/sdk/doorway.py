"""The way of a program to a proxy: a ticket from the gateway, then an authenticated connection to the door.

The gateway carries none of the session's bytes.  When the proxy is lost, the same way is gone again for a new
session that goes on with what the lost one had, for as long as it is worth waiting; this file knows no torch.
"""

from __future__ import annotations

import base64
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from dgsf.errors import ConnectionLost, DgsfError, PlatformError, SessionLost
from dgsf.sdk.client import Client
from dgsf.wire.alive import watch_peer
from dgsf.wire.handshake import shake_blocking
from dgsf.wire.link import host_id
from dgsf.wire.tickets import knock

CONNECT_SECONDS = 10.0
OPEN_SECONDS = 8.0  # for a proxy to be there at all; one that was killed is back after about two
RETURN_SECONDS = 60.0  # for a proxy to be there again
PAUSES = (0.05, 1.0)  # between two tries: at least, at most
PAUSE_SHARE = 0.1  # of the time that was waited already: a door that opens is found at most so much later
_ANYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - what a server may bind to, not what we connect to


@dataclass(frozen=True, slots=True)
class Doorway:
    """What one program asks for, so that it can be asked again."""

    client: Client
    gpu: str | Sequence[str] = "any"
    memory: str | int = "1GiB"
    wait: float | None = None
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def ticket(self, resumes: str = "") -> Ticket:
        return Ticket.of(self.client.open_session(self.gpu, self.memory, self.wait, resumes), self.client)

    def first(self) -> socket.socket:
        """A connection for a new session; a proxy that is being started again is waited for."""
        started = self.now()
        while True:
            try:
                ticket = self.ticket()
            except PlatformError as error:
                if type(error) is not PlatformError:  # that no proxy takes sessions now has no class of its own
                    raise
                shut = error
            else:
                try:
                    return connect(ticket)
                except ConnectionLost as error:
                    shut = error
            pause = pause_after(self.now() - started)
            if self.now() - started + pause > OPEN_SECONDS:
                raise shut
            self.sleep(pause)

    def again(self, last: str) -> socket.socket:
        """A connection for the session that goes on with what `last` had; waits for a door to be open."""
        started = self.now()
        while True:
            try:
                return connect(self.ticket(last))
            except DgsfError as error:
                waited = self.now() - started
                pause = pause_after(waited)
                if not error.retryable or waited + pause > RETURN_SECONDS:
                    raise SessionLost(
                        "the proxy of this session is gone and its device state with it, and there was no other for it "
                        f"after {waited:.0f} s: {error.message}; 'dgsf devices' tells what there is, then attach "
                        "again"
                    ) from None
            self.sleep(pause)


def pause_after(waited: float) -> float:
    """Until the next try, when there was no door for so long."""
    least, most = PAUSES
    return min(max(least, PAUSE_SHARE * waited), most)


@dataclass(frozen=True, slots=True)
class Ticket:
    """What the gateway gave: the right to one session, and where its door is."""

    session: str
    ticket: bytes
    key: bytes
    near: str  # a Unix path on this host, or empty
    far: tuple[str, int]

    @classmethod
    def of(cls, document: dict[str, Any], client: Client) -> Ticket:
        host = str(document.get("tcp_host", ""))
        if host in _ANYWHERE:  # the proxy listens everywhere: where the gateway is, it can be reached
            host = urlsplit(getattr(client.driver, "url", "")).hostname or "127.0.0.1"
        path = str(document.get("unix_path", ""))
        return cls(
            str(document["id"]),
            base64.urlsafe_b64decode(document["ticket"]),
            base64.urlsafe_b64decode(document["key"]),
            path if document.get("host_id") == _this_host() and os.access(path, os.W_OK) else "",
            (host, int(document.get("tcp_port", 0))),
        )


def connect(ticket: Ticket) -> socket.socket:
    """An authenticated connection to the proxy's door; ConnectionLost that says where it failed."""
    where = ticket.near or "{}:{}".format(*ticket.far)
    sock = socket.socket(socket.AF_UNIX if ticket.near else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.settimeout(CONNECT_SECONDS)
        watch_peer(sock)
        sock.connect(ticket.near or ticket.far)
        sock.sendall(knock(ticket.ticket))
        shake_blocking(sock, ticket.key)
    except (OSError, DgsfError) as error:
        sock.close()
        raise ConnectionLost(
            f"the door for sessions at {where} did not open: {error}; is the platform up ('dgsf up', or a proxy by "
            "itself, 'dgsf proxy')? proxy.log in its folder of logs says more"
        ) from error
    return sock


def _this_host() -> str:
    try:
        return host_id()
    except OSError:  # not Linux
        return ""
