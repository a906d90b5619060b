"""The proxies apart, seen from a gateway: spilling over, and telling a silent proxy from a busy database."""

from __future__ import annotations

import asyncio
import contextlib
from uuid import uuid4

import pytest

from dgsf.config import Settings
from dgsf.errors import DgsfError, QueueFull, ShuttingDown
from dgsf.store.calls import CallStore
from dgsf.store.catalogue import Catalogue
from dgsf.store.proxies import ProxyStore
from dgsf.store.registry import Registry
from dgsf.wire.link import host_id
from dgsf.wire.messages import Codec, Failure
from dgsf.wire.ports import CallRequest, CallResult, CallStream, Payload
from dgsf.wire.shared import SharedArea
from gateway import fleet as fleet_module
from gateway.fleet import Fleet
from proxy.server import GatewayLink, ProxyServer

SECRET = b"a secret of the cluster"
DEADLINE = 60


class Port:
    """The calls behind a proxy's door: refused with the error, or answered."""

    def __init__(self, error: DgsfError | None = None) -> None:
        self.error = error
        self.seen = 0

    def number_for(self, version_id: int) -> int:
        return 1

    def open(self, request: CallRequest) -> CallStream:
        self.seen += 1
        stream = CallStream(lambda: None)
        failure = Failure.of(self.error) if self.error else None
        stream.finish(CallResult("failed" if failure else "succeeded", None, failure))
        return stream


class Proxies(ProxyStore):
    """The store's list of proxies, which can be made to stall."""

    def __init__(self, database) -> None:
        super().__init__(database)
        self.free = asyncio.Event()
        self.free.set()
        self.errors: list[Exception] = []

    async def list_proxies(self, max_age_s: float):
        await self.free.wait()
        if self.errors:
            raise self.errors.pop()
        return await super().list_proxies(max_age_s)


@contextlib.asynccontextmanager
async def running(database, tmp_path, ports):
    """A fleet over real sockets, with each port behind a proxy's server of its own."""
    area = SharedArea(f"dgsf-test-{uuid4().hex[:12]}")
    area.make()
    proxies, settings, servers = Proxies(database), Settings(), []
    for number, port in enumerate(ports):
        path = tmp_path / f"{number}.sock"
        server = ProxyServer(settings, SECRET, area, path)
        tcp_port = server.listen("127.0.0.1")
        server.start(port)
        servers.append(server)
        await proxies.register(f"n{number}/proxy", f"n{number}", host_id(), str(path), "127.0.0.1", tcp_port)
    fleet = Fleet(settings, SECRET, area, proxies, CallStore(database), Catalogue(Registry(database)))
    await fleet.start()
    try:
        yield fleet, proxies
    finally:
        await fleet.stop()
        for server in servers:
            await server.stop()
        area.remove()


async def called(fleet: Fleet) -> CallResult:
    request = CallRequest(uuid4(), 1, 2, Payload.of(Codec.raw, b"x"), Codec.json, 1_000_000)
    async with asyncio.timeout(DEADLINE):
        return await fleet.open(request).result()


async def until(condition) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_call_that_every_proxy_refuses_is_refused_after_one_try_at_each(database, tmp_path):
    ports = [Port(QueueFull()) for _ in range(3)]
    async with running(database, tmp_path, ports) as (fleet, _):
        result = await called(fleet)
    assert result.failure is not None
    assert result.failure.code == "queue_full"
    assert [port.seen for port in ports] == [1, 1, 1]


@pytest.mark.parametrize("error", [QueueFull(), ShuttingDown()], ids=["full", "stopping"])
async def test_a_call_spills_over_to_the_only_proxy_that_takes_it(database, tmp_path, error):
    ports = [Port(error), Port(), Port(error)]
    async with running(database, tmp_path, ports) as (fleet, _):
        assert (await called(fleet)).failure is None
    assert ports[1].seen == 1


async def test_a_stalled_database_does_not_make_proxies_look_silent(database, tmp_path, monkeypatch):
    monkeypatch.setattr(fleet_module, "BEAT_SECONDS", 0.1)
    async with running(database, tmp_path, [Port()]) as (fleet, proxies):
        (link,) = fleet._links.values()
        pings = []
        monkeypatch.setattr(link, "ping", lambda ping=link.ping: (pings.append(1), ping()))
        proxies.free.clear()
        await until(lambda: len(pings) > 3 * fleet_module.SILENT_BEATS)
        assert not link.lost
        assert (await called(fleet)).failure is None
        proxies.free.set()


async def test_a_proxy_that_does_not_answer_pings_is_given_up(database, tmp_path, monkeypatch):
    monkeypatch.setattr(fleet_module, "BEAT_SECONDS", 0.05)
    async with running(database, tmp_path, [Port()]) as (fleet, _):
        (link,) = fleet._links.values()
        with monkeypatch.context() as deaf:
            deaf.setattr(GatewayLink, "frame_received", lambda *frame: None)  # it hears and says nothing
            await until(lambda: link.lost)
        await until(lambda: fleet.ready)  # it is found again, and no connection is half made when all ends


async def test_an_unexpected_error_does_not_end_the_search_for_proxies(database, tmp_path, monkeypatch):
    monkeypatch.setattr(fleet_module, "BEAT_SECONDS", 0.05)
    async with running(database, tmp_path, [Port()]) as (fleet, proxies):
        proxies.errors = [ValueError("odd")]
        await until(lambda: not proxies.errors)
        next(iter(fleet._links.values())).close()
        assert not fleet.ready
        await until(lambda: fleet.ready)
