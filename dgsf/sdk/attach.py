"""`dgsf.attach()`: a remote device for any Python program.

It opens a session at a proxy (`doorway`) and binds it as torch's device "dgsf".  A session whose proxy is lost goes on
at another one, or at the same when it is back.  torch and the guest are loaded only here.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dgsf.config import load_settings
from dgsf.core.checkpointing import CheckpointPolicy
from dgsf.core.options import parse_options
from dgsf.errors import InvalidOption, UsageError
from dgsf.sdk.client import Client
from dgsf.sdk.doorway import Doorway, connect
from dgsf.sdk.quiet import Quiet, quiet

if TYPE_CHECKING:
    import torch

    from dgsf.remoting.guest.session_stream import SessionStream

log = logging.getLogger(__name__)
PATIENCE_SECONDS = 2.0  # then the program's user is told what is waited for


def attach(
    gpu: str | Sequence[str] = "any",
    memory: str | int = "1GiB",
    alias: str = "",
    *,
    wait: float | None = None,
    client: Client | None = None,
) -> Quiet[torch.device]:
    """A remote device for the time of this context: `with dgsf.attach() as device: model.to(device)`.

    `gpu`: a type, several in order of preference, or "any"; `memory`: of the device; `alias="cuda"` lets code that
    asks for CUDA find the remote device; `wait`: seconds to wait for a free one.  Inside a function that has a
    remote device already, it is that device.  `@dgsf.attach()` above a function gives each of its calls a device.
    """
    return quiet(functools.partial(_attached, gpu, memory, alias, wait, client))


@contextlib.contextmanager
def _attached(
    gpu: str | Sequence[str], memory: str | int, alias: str, wait: float | None, client: Client | None
) -> Iterator[torch.device]:
    _need_torch()
    import torch

    from dgsf.remoting.guest.attach import bind
    from dgsf.remoting.guest.bound import bound

    if bound.standing:
        yield torch.device(bound.name)
        return
    _check(gpu, memory, alias)
    stream = _open(client or Client(), gpu, memory, wait)
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
    doorway = Doorway(client, gpu, memory, wait)
    found = doorway.ticket()
    with _telling("waiting for a free device; 'dgsf leases' shows who has them (Ctrl-C gives up)"):
        sock = connect(found)
        try:
            return SessionStream(sock, modes, CheckpointPolicy(), reopen=lambda last: _reopen(doorway, last))
        except BaseException:
            sock.close()
            raise


def _reopen(doorway: Doorway, last: str) -> socket.socket:
    with _telling("the proxy of this session is gone; waiting for it or another (Ctrl-C gives up)"):
        return doorway.again(last)


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
