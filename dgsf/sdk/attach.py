"""`dgsf.attach()`: a remote device for any Python program.

It opens a session at a proxy (`doorway`) and binds it as torch's device "dgsf".  A session whose proxy is lost goes on
at another one, or at the same when it is back.  torch and the guest are loaded only here.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import socket
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dgsf.config import load_settings
from dgsf.core.checkpointing import CheckpointPolicy
from dgsf.core.options import FunctionOptions, parse_options
from dgsf.core.shortage import WAITING
from dgsf.errors import InvalidOption, UsageError
from dgsf.sdk.client import Client
from dgsf.sdk.doorway import Doorway
from dgsf.sdk.quiet import Quiet, quiet
from dgsf.sdk.waiting import for_device, telling

if TYPE_CHECKING:
    import torch

    from dgsf.remoting.guest.session_stream import SessionStream


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
    options = _check(gpu, memory, alias)
    platform = client or Client()
    with telling(lambda: for_device(platform, options.gpu, options.memory_bytes) or WAITING):
        stream = _open(Doorway(platform, gpu, memory, wait))
    try:
        with bind(stream, alias) as device:
            yield device
    finally:
        stream.close()


def _need_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise UsageError("dgsf.attach needs torch in this program: pip install 'dgsf[torch]'")


def _check(gpu: str | Sequence[str], memory: str | int, alias: str) -> FunctionOptions:
    """The same words for the same mistakes as at a function's decorator, before a platform is asked."""
    types = gpu if isinstance(gpu, str) or not isinstance(gpu, Sequence) else [*gpu]
    options = parse_options({"gpu": types, "memory": memory})
    if alias not in ("", "cuda"):
        raise InvalidOption(f"option alias={alias!r}: expected '' or 'cuda'", option="alias")
    return options


def _open(doorway: Doorway) -> SessionStream:
    from dgsf.remoting.guest.modes import parse_modes
    from dgsf.remoting.guest.session_stream import SessionStream

    modes = parse_modes(load_settings().remoting)
    sock = doorway.first()
    try:
        return SessionStream(sock, modes, CheckpointPolicy(), reopen=lambda last: _reopen(doorway, last))
    except BaseException:
        sock.close()
        raise


def _reopen(doorway: Doorway, last: str) -> socket.socket:
    with telling(lambda: "the proxy of this session is gone; waiting for it or another (Ctrl-C gives up)"):
        return doorway.again(last)
