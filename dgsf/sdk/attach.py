"""`dgsf.attach()`: a remote device for any Python program.

It asks the gateway for a ticket, goes with it to the door of a proxy, and binds the session that opens there as
torch's device "dgsf".  The gateway carries none of the session's bytes.  torch and the guest are loaded only here.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import logging
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dgsf.config import load_settings
from dgsf.core.checkpointing import CheckpointPolicy
from dgsf.core.options import parse_options
from dgsf.errors import ConnectionLost, DgsfError, InvalidOption, UsageError
from dgsf.sdk.client import Client
from dgsf.wire.handshake import shake_blocking
from dgsf.wire.link import host_id
from dgsf.wire.tickets import knock

if TYPE_CHECKING:
    import torch

    from dgsf.remoting.guest.session_stream import SessionStream

log = logging.getLogger(__name__)
CONNECT_SECONDS = 10.0
PATIENCE_SECONDS = 2.0  # then the program's user is told what is waited for
_ANYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - what a server may bind to, not what we connect to


@contextlib.contextmanager
def attach(
    gpu: str | Sequence[str] = "any",
    memory: str | int = "1GiB",
    alias: str = "",
    *,
    wait: float | None = None,
    client: Client | None = None,
) -> Iterator[torch.device]:
    """A remote device for the time of this context: `with dgsf.attach() as device: model.to(device)`.

    `gpu`: a type, several in order of preference, or "any"; `memory`: of the device; `alias="cuda"` lets code that
    asks for CUDA find the remote device; `wait`: seconds to wait for a free one.  Inside a function that has a
    remote device already, it is that device.
    """
    _need_torch()
    import torch

    from dgsf.remoting.guest.attach import bind
    from dgsf.remoting.guest.bound import bound

    if bound.standing:
        yield torch.device(bound.name)
        return
    try:
        _check(gpu, memory, alias)
        stream = _open(client or Client(), gpu, memory, wait)
    except DgsfError as error:
        raise error.with_traceback(None) from None  # its text says it all; our frames would bury it
    try:
        with bind(stream, alias) as device:
            yield device
    finally:
        stream.close()


def _need_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise UsageError("dgsf.attach needs torch in this program: pip install 'dgsf[torch]'")


def _check(gpu: str | Sequence[str], memory: str | int, alias: str) -> None:
    """The same words for the same mistakes as at a function's decorator, before a platform is asked."""
    parse_options({"gpu": gpu if isinstance(gpu, str) or not isinstance(gpu, Sequence) else [*gpu], "memory": memory})
    if alias not in ("", "cuda"):
        raise InvalidOption(f"option alias={alias!r}: expected '' or 'cuda'", option="alias")


def _open(client: Client, gpu: str | Sequence[str], memory: str | int, wait: float | None) -> SessionStream:
    from dgsf.remoting.guest.modes import parse_modes
    from dgsf.remoting.guest.session_stream import SessionStream

    modes = parse_modes(load_settings().remoting)
    found = Ticket.of(client.open_session(gpu, memory, wait), client)
    with _telling("waiting for a free device; 'dgsf leases' shows who has them (Ctrl-C gives up)"):
        sock = connect(found)
        try:
            return SessionStream(sock, modes, CheckpointPolicy())
        except BaseException:
            sock.close()
            raise


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
        if not ticket.near:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.connect(ticket.near or ticket.far)
        sock.sendall(knock(ticket.ticket))
        shake_blocking(sock, ticket.key)
    except (OSError, DgsfError) as error:
        sock.close()
        raise ConnectionLost(f"the door for sessions at {where} did not open: {error}; is 'dgsf proxy' up?") from error
    return sock


def _this_host() -> str:
    try:
        return host_id()
    except OSError:  # not Linux
        return ""


@contextlib.contextmanager
def _telling(text: str) -> Iterator[None]:
    """Says it once if the body takes long: on stderr, or wherever the program sends its log."""
    timer = threading.Timer(PATIENCE_SECONDS, log.warning, ("dgsf: %s", text))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
