"""What runs inside Ray: the actor around one device server, and the question what a node offers.

The actor owns no decision and no state but its DeviceServer; its process accepts connections and hands
them over, and forks nothing itself.  Both read the node's own settings, which came down from the raylet.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from dgsf.config import Settings, load_settings
from dgsf.core.devices import HOST, DeviceSpec
from dgsf.core.topology import Place
from dgsf.fabric.device_server import DeviceServer, ServerOptions
from dgsf.fabric.devices import offers
from dgsf.fabric.remote_device import MODES_OPTION
from dgsf.paths import Layout, layout_of, private_folder
from dgsf.telemetry import setup_logging
from dgsf.wire.link import Address

T = TypeVar("T")


def offered_devices() -> list[DeviceSpec]:
    """This node's devices and its function host, by its own DGSF_DEVICES and DGSF_HOSTS."""
    settings = load_settings()
    return offers(settings.devices, settings.hosts, settings.price_nano_per_us)


class DeviceActor:
    """One device of one node, for as long as this process lives.

    The server has a thread and a plain event loop of its own: it passes raw sockets around, which is not
    what Ray's own loop is made for, and its zygote dies with the thread that started it.
    """

    def __init__(self, place: Place, secret: bytes, mark: str, host: str) -> None:
        settings = load_settings()
        layout = layout_of(settings if settings.mark else settings.with_changes(mark=mark))
        if layout.data_dir.is_dir():
            setup_logging(settings, f"device {place.name}", _log_path(layout, place))
        self._loop = asyncio.SelectorEventLoop()
        threading.Thread(target=self._loop.run_forever, name="device server", daemon=True).start()
        self._server = self._run(_make(_told(place, settings), secret, layout, host))

    def start(self) -> Address:
        return self._run(self._server.start())

    def set_incarnation(self, incarnation: int) -> None:
        self._run(self._server.set_incarnation(incarnation))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _told(place: Place, settings: Settings) -> Place:
    """The workers of a function host learn how their sessions are to work."""
    if place.spec.kind != HOST:
        return place
    options = place.spec.options | {MODES_OPTION: settings.remoting}
    return dataclasses.replace(place, spec=dataclasses.replace(place.spec, options=options))


async def _make(place: Place, secret: bytes, layout: Layout, host: str) -> DeviceServer:
    return DeviceServer(
        place.spec,
        name=place.name,
        incarnation=0,
        secret=secret,
        run_dir=private_folder(layout.run_dir),
        shared_name=layout.shared_name,
        tcp_host=host,
        options=ServerOptions(hidden=(str(layout.data_dir), str(layout.run_dir))),
    )


def _log_path(layout: Layout, place: Place) -> Path:
    return layout.logs / f"device-{place.name.replace('/', '-')}.log"
