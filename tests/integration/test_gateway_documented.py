"""Every status and code that OpenAPI documents can be produced, route by route."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from gateway_world import MIB, Answer, World, failing, fresh_database, packed, running

from dgsf.errors import StoreUnavailable
from dgsf.ids import key_id_of
from dgsf.store.catalogue import Catalogue
from gateway.openapi import errors_of
from gateway.routes import ROUTES, match

pytestmark = pytest.mark.asyncio(loop_scope="module")
INVOKE = "POST /v1/functions/{name}/invoke"
DEPLOY = "PUT /v1/functions/{name}"
DRAIN, RESTORE = "POST /v1/devices/{name}/drain", "POST /v1/devices/{name}/restore"
FORGET = "POST /v1/devices/{name}/forget"
ATTACH, MOVE = "POST /v1/sessions", "POST /v1/sessions/{id}/move"
SESSION = "GET /v1/sessions/{id}"
CASES = [(route.name, kind.code, kind.status) for route in ROUTES for kind in errors_of(route)]
FROM_WORKERS = (
    *("queue_full", "unavailable", "no_device", "start_deadline_missed", "shutting_down", "outcome_unknown"),
    *("function_error", "result_not_json", "result_too_large", "timed_out", "worker_crashed", "out_of_memory"),
    *("function_load_error", "result_not_sendable"),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def only_world(database_url: str):
    async with fresh_database(database_url) as database, running(database, max_code_bytes=MIB) as found:
        yield found


@pytest.fixture
def world(only_world: World):
    only_world.workers.reset()
    return only_world


async def _used_key(world: World, first: dict[str, Any], second: dict[str, Any]) -> Answer:
    key = uuid4().hex
    await world.call(**first, Idempotency_Key=key)
    return await world.call(**second, Idempotency_Key=key)


def _large(seed: int) -> dict[str, Any]:
    return {"body": bytes([seed]) * (2 * MIB), "kind": "application/octet-stream"}


PROVOKED: dict[tuple[str, str], Callable[[World], Awaitable[Answer]]] = {
    (INVOKE, "invalid_json"): lambda w: w.call(body=b"{"),
    (INVOKE, "invalid_arguments"): lambda w: w.call("one"),
    (INVOKE, "invalid_header"): lambda w: w.call(X_Dgsf_Timeout="never"),
    (INVOKE, "not_found"): lambda w: w.call("nothing"),
    (INVOKE, "conflict"): lambda w: _used_key(w, _large(1), _large(1)),
    (INVOKE, "body_too_large"): lambda w: w.call(body=b'["' + b"x" * (17 * MIB) + b'"]'),
    (INVOKE, "idempotency_mismatch"): lambda w: _used_key(w, {"body": b"[1]"}, {"body": b"[2]"}),
    (DEPLOY, "body_too_large"): lambda w: w.deploy("f", code=b"x" * (MIB + 1)),
    (DEPLOY, "unprocessable"): lambda w: w.deploy("f", digest="00"),
    (DEPLOY, "invalid_name"): lambda w: w.deploy("-f"),
    (DEPLOY, "unknown_option"): lambda w: w.deploy("f", options={"nothing": 1}),
    (DEPLOY, "invalid_option"): lambda w: w.deploy("f", options={"retries": -1}),
    (DEPLOY, "python_mismatch"): lambda w: w.deploy("f", python="2.7"),
    (DEPLOY, "does_not_fit"): lambda w: w.deploy("f", options={"gpu": "H100"}),
    ("GET /v1/functions/{name}", "not_found"): lambda w: w.ask("GET", "/v1/functions/nothing"),
    ("DELETE /v1/functions/{name}", "not_found"): lambda w: w.ask("DELETE", "/v1/functions/nothing"),
    ("GET /v1/functions", "bad_request"): lambda w: w.ask("GET", "/v1/functions?limit=x"),
    ("GET /v1/usage", "bad_request"): lambda w: w.ask("GET", "/v1/usage?since=x"),
    ("POST /v1/keys", "bad_request"): lambda w: w.ask("POST", "/v1/keys", data=b"{}"),
    ("POST /v1/keys", "invalid_json"): lambda w: w.ask("POST", "/v1/keys", data=b"{"),
    ("POST /v1/keys", "body_too_large"): lambda w: w.ask("POST", "/v1/keys", data=b" " * 5000),
    (DRAIN, "not_found"): lambda w: w.ask("POST", "/v1/devices/nothing/drain"),
    (DRAIN, "conflict"): lambda w: _lost_device(w),
    (RESTORE, "not_found"): lambda w: w.ask("POST", "/v1/devices/nothing/restore"),
    (RESTORE, "conflict"): lambda w: w.ask("POST", "/v1/devices/1/restore"),
    (FORGET, "not_found"): lambda w: w.ask("POST", "/v1/devices/nothing/forget"),
    (FORGET, "conflict"): lambda w: w.ask("POST", "/v1/devices/1/forget"),
    (ATTACH, "bad_request"): lambda w: w.ask("POST", "/v1/sessions", data=b'{"colour": "red"}'),
    (ATTACH, "invalid_json"): lambda w: w.ask("POST", "/v1/sessions", data=b"{"),
    (ATTACH, "body_too_large"): lambda w: w.ask("POST", "/v1/sessions", data=b" " * 20_000),
    (ATTACH, "invalid_option"): lambda w: w.ask("POST", "/v1/sessions", data=b'{"memory": "much"}'),
    (ATTACH, "does_not_fit"): lambda w: w.ask("POST", "/v1/sessions", data=b'{"gpu": "H100"}'),
    (ATTACH, "unavailable"): lambda w: w.ask("POST", "/v1/sessions", data=b"{}"),
    (SESSION, "not_found"): lambda w: w.ask("GET", f"/v1/sessions/{uuid4()}"),
    (MOVE, "bad_request"): lambda w: w.ask("POST", "/v1/sessions/x/move", data=b'{"to": 1}'),
    (MOVE, "invalid_json"): lambda w: w.ask("POST", "/v1/sessions/x/move", data=b"{"),
    (MOVE, "body_too_large"): lambda w: w.ask("POST", "/v1/sessions/x/move", data=b" " * 20_000),
    (MOVE, "not_found"): lambda w: w.ask("POST", "/v1/sessions/x/move", data=b"{}"),
    ("DELETE /v1/keys/{key_id}", "conflict"): lambda w: w.ask("DELETE", f"/v1/keys/{key_id_of(w.keys['operator'])}"),
    ("DELETE /v1/keys/{key_id}", "not_found"): lambda w: w.ask("DELETE", "/v1/keys/nothing"),
}


@pytest.mark.parametrize(("route", "code", "status"), CASES)
async def test_a_documented_code_can_be_produced(world: World, monkeypatch, route, code, status):
    answer = await _provoke(world, monkeypatch, route, code)
    assert (answer.status, answer.code) == (status, code)


async def _provoke(world: World, monkeypatch: pytest.MonkeyPatch, route: str, code: str) -> Answer:
    if (route, code) in PROVOKED:
        return await PROVOKED[route, code](world)
    if route == INVOKE and code in FROM_WORKERS:
        world.workers.behaviour = failing(code)
        return await world.call()
    if code == "unauthenticated":
        return await _plain(world, route, key="dgsf_no_key")
    if code == "forbidden":
        return await _plain(world, route, key="invoke")
    if code == "internal":
        return await _broken(world, monkeypatch, route)
    if code == "store_unavailable":
        return await _away(world, monkeypatch, route)
    if code == "no_device":
        monkeypatch.setattr(world.context.devices, "list_devices", _nothing)
        return await (_plain(world, route, key="operator") if route == ATTACH else world.deploy("f"))
    assert (route, code) == ("GET /readyz", "unavailable"), "nobody knows how to provoke this"
    return await _not_ready(world)


async def _lost_device(world: World) -> Answer:
    place = {"node": "box", "kind": "cpu", "type": "cpu", "memory_bytes": 1, "slots": 1, "speed": 1.0}
    where = {"price_nano_per_us": 1, "host_id": "h", "unix_path": None, "tcp_host": None, "tcp_port": None}
    row = await world.context.devices.register(name="box/gone", **place, **where)
    await world.context.devices.mark_lost(row.id, row.incarnation)
    return await world.ask("POST", "/v1/devices/box%2Fgone/drain")


async def _plain(world: World, route: str, key: str) -> Answer:
    method, _, pattern = route.partition(" ")
    path = pattern.replace("{name}", "echo").replace("{key_id}", "x")
    data = {DEPLOY: packed(), INVOKE: b"{}", "POST /v1/keys": b'{"role": "invoke"}'}.get(route)
    kind = {"Content-Type": "application/json"}
    return await world.ask(method, path, key=key, data=data, headers=kind if data else {})


async def _broken(world: World, monkeypatch: pytest.MonkeyPatch, route: str) -> Answer:
    """Something inside raises what nobody expects."""
    method, _, pattern = route.partition(" ")

    async def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    if route == INVOKE:
        monkeypatch.setattr(world.gateway._invoker, "invoke_as", broken)
    else:
        row = match(method, pattern).route
        monkeypatch.setattr(
            "gateway.routes.ROUTES",
            tuple(dataclasses.replace(item, handler=broken) if item is row else item for item in ROUTES),
        )
    return await _plain(world, route, key="operator")


async def _away(world: World, monkeypatch: pytest.MonkeyPatch, route: str) -> Answer:
    """The cache is empty and the store does not answer."""
    monkeypatch.setattr(world.context.catalogue, "_away", StoreUnavailable())
    monkeypatch.setattr(Catalogue, "_look", _forever)
    monkeypatch.setattr(world.context.catalogue, "_fresh_until", 0.0)
    return await _plain(world, route, key="operator")


async def _not_ready(world: World) -> Answer:
    from gateway.server import Gateway

    gateway = Gateway(dataclasses.replace(world.context, ready=lambda: False))
    port = world.port
    try:
        world.port = await gateway.start("127.0.0.1", 0)
        return await world.ask("GET", "/readyz", key=None)
    finally:
        world.port = port
        await gateway.stop(1.0)


async def _nothing(*_: Any) -> list[Any]:
    return []


async def _forever(*_: Any) -> None:
    await asyncio.sleep(0.05)
