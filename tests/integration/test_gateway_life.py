"""Starting, stopping, sharing a port, and living through the loss of the database."""

from __future__ import annotations

import asyncio
import shutil
import time

import aiohttp
import pytest
from databases import quick_folder
from gateway_world import World, eventually, running

from dgsf.store.database import Database
from dgsf.store.embedded import EmbeddedPostgres
from dgsf.store.migrate import migrate
from gateway import server
from gateway.server import Gateway


async def test_a_stop_lets_running_calls_end(database: Database):
    async with running(database) as world:
        release = world.workers.hold()
        call = asyncio.create_task(world.call(body=b'{"x": 1}'))
        await eventually(lambda: world.workers.seen)
        stop = asyncio.create_task(world.gateway.stop(60.0))
        await eventually(lambda: not _listens(world))
        release.set()
        assert (await call).body == b'{"x": 1}'
        await stop
        assert not world.workers.cancelled


async def test_a_stop_gives_up_what_does_not_end_and_answers_it(database: Database):
    async with running(database) as world:
        world.workers.hold()
        call = asyncio.create_task(world.call())
        await eventually(lambda: world.workers.seen)
        await world.gateway.stop(0.1)
        assert (await call).code == "cancelled", "a proxy makes of it that the platform stops"
        (cancelled,) = world.workers.cancelled
        assert cancelled.given_up


async def test_a_stop_cancels_what_is_given_up_and_does_not_end_either(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server, "GIVE_UP_SECONDS", 0.1)
    async with running(database) as world:
        world.workers.hold()
        monkeypatch.setattr(world.gateway._invoker, "give_up", lambda: None)
        call = asyncio.create_task(world.call())
        await eventually(lambda: world.workers.seen)
        await world.gateway.stop(0.1)
        with pytest.raises(aiohttp.ClientError):
            await call
        await eventually(lambda: world.workers.cancelled)


async def test_two_gateways_share_one_port(database: Database):
    async with running(database) as world:
        first, second = Gateway(world.context), Gateway(world.context)
        try:
            world.port = await first.start("127.0.0.1", 0, share=True)
            assert await second.start("127.0.0.1", world.port, share=True) == world.port

            async def both():
                async with aiohttp.ClientSession() as fresh, fresh.get(world.url + "/healthz") as reply:
                    assert reply.status == 200
                return first.counters.answers and second.counters.answers

            await eventually(both)
        finally:
            await first.stop(1.0)
            await second.stop(1.0)


async def test_a_port_that_is_taken_is_an_error(database: Database):
    async with running(database) as world:
        other = Gateway(world.context)
        with pytest.raises(OSError, match="in use"):
            await other.start("127.0.0.1", world.port)
        await other.stop(1.0)


async def test_readiness_tells_when_no_proxy_takes_calls(database: Database):
    import dataclasses

    async with running(database) as world:
        gateway = Gateway(dataclasses.replace(world.context, ready=lambda: False))
        try:
            world.port = await gateway.start("127.0.0.1", 0)
            answer = await world.ask("GET", "/readyz", key=None)
            assert (answer.status, answer.code) == (503, "unavailable")
        finally:
            await gateway.stop(1.0)


@pytest.mark.timeout(300)
async def test_while_the_database_is_away_every_route_says_so_at_once_and_comes_back():
    home = quick_folder()
    server = EmbeddedPostgres(home / "data", run_dir=home / "run")
    database = await Database.connect(await server.start(), timeout=30.0)
    try:
        await migrate(database)
        async with running(database) as world:
            assert (await world.call()).status == 200
            await server.stop()
            await _goes_away(world)
            await server.start()
            await _comes_back(world)
    finally:
        await database.close()
        await server.stop()
        shutil.rmtree(home)


async def _goes_away(world: World) -> None:
    async def noticed():
        return (await world.ask("GET", "/readyz", key=None)).status == 503

    await eventually(noticed)
    began = time.monotonic()
    for method, path in (
        ("GET", "/v1/functions"),
        ("GET", "/v1/functions/nothing"),
        ("DELETE", "/v1/functions/echo"),
        ("GET", "/v1/devices"),
        ("GET", "/v1/leases"),
        ("GET", "/v1/usage"),
        ("GET", "/v1/keys"),
    ):
        answer = await world.ask(method, path)
        assert (answer.status, answer.code, answer.json["retryable"]) == (503, "store_unavailable", True)
        assert int(answer.headers["Retry-After"]) >= 1
    assert time.monotonic() - began < 60  # at once, on a slow machine too
    assert (await world.call(Idempotency_Key="away")).code == "store_unavailable"

    async def refused():
        return (await world.call()).status == 503

    await eventually(refused)  # what was cached is good for 2 s
    assert (await world.ask("GET", "/healthz", key=None)).status == 200


async def _comes_back(world: World) -> None:
    async def ready():
        return (await world.ask("GET", "/readyz", key=None)).status == 200

    await eventually(ready)
    assert (await world.call(body=b'{"x": 1}')).body == b'{"x": 1}'
    assert (await world.call(Idempotency_Key="away")).status == 200


def _listens(world: World) -> bool:
    listener = world.gateway._listener
    return listener is not None and listener.is_serving()
