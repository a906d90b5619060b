"""Says what is waited for, once, when it takes long: on stderr, or wherever the program sends its log."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from dgsf.core.shortage import what_is_awaited
from dgsf.errors import DgsfError

if TYPE_CHECKING:
    from dgsf.sdk.client import Client

log = logging.getLogger(__name__)
PATIENCE_SECONDS = 2.0  # then the program's user is told what is waited for


@contextlib.contextmanager
def telling(words: Callable[[], str]) -> Iterator[None]:
    """Asks for words when the body takes long, and again while there are none; says them once."""
    done = threading.Event()
    threading.Thread(target=_tell, args=(words, done), name="dgsf-waiting", daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _tell(words: Callable[[], str], done: threading.Event) -> None:
    while not done.wait(PATIENCE_SECONDS):
        text = words()
        if text and not done.is_set():
            log.warning("dgsf: %s", text)
            return


def for_device(client: Client, gpu: str | Sequence[str], memory_bytes: int, mine: str = "") -> str:
    """Why there is no device now, as far as the platform says; empty: there is one, or it does not say."""
    try:
        devices = client.devices().get("devices") or []
        return what_is_awaited(devices, client.leases().get("leases") or [], gpu, memory_bytes, mine)
    except (DgsfError, RuntimeError, LookupError, TypeError):  # gone, closed meanwhile, or of another version
        return ""
