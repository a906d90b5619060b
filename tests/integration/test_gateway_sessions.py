"""Sessions over HTTP: tickets that the proxy will believe, listings by tenant, wishes, drains."""

import base64
import dataclasses
import time
from uuid import UUID, uuid4

import pytest
from gateway_world import add_device, running

from dgsf.store.proxies import ProxyStore
from dgsf.store.sessions import SessionState, SessionStore
from dgsf.wire.tickets import accept, session_key

SECRET = "a secret of this test"
DOOR = ("/run/sessions.sock", "10.0.0.7", 4242)


def state(tenant_id, **changes):
    values = {
        "id": uuid4(), "tenant_id": tenant_id, "version_id": None, "device_id": 1, "state": "attached", "generation": 1,
        "memory_bytes": 5, "memory_used": 0, "bytes_up": 1, "bytes_down": 2, "device_us": 3, "cost_nano": 4,
        "error_code": None, "started_at": time.time(),
    }  # fmt: skip
    return SessionState(**values | changes)


async def test_a_ticket_says_who_and_what_and_where_and_its_key_fits(database):
    async with running(database, cluster_secret=SECRET) as world:
        proxies = ProxyStore(database)
        await proxies.register("box/gateway", "box", "h")
        row = await proxies.register("box/proxy", "box", "host", "/run/p.sock", "10.0.0.7", 1, DOOR)
        wanted = {"gpu": ["A100", "any"], "memory": "2GiB", "start_seconds": 7}
        answer = await world.ask("POST", "/v1/sessions", key="invoke", json=wanted)
        assert answer.status == 201, answer.body
        found = answer.json
        assert (found["unix_path"], found["tcp_host"], found["tcp_port"], found["host_id"]) == (*DOOR, row.host_id)
        claims = accept(base64.urlsafe_b64decode(found["ticket"]), SECRET.encode(), time.time())
        assert (claims.tenant_id, claims.gpu, claims.memory_bytes) == (world.tenant_id, ("A100", "any"), 2 << 30)
        assert (UUID(bytes=claims.session), claims.start_seconds) == (UUID(found["id"]), 7.0)
        key = base64.urlsafe_b64decode(found["key"])
        assert key == session_key(claims.session, SECRET.encode())


async def test_sessions_are_listed_to_their_tenant_and_to_operators(database):
    async with running(database) as world:
        store = SessionStore(database)
        other = await world.registry.create_tenant("other")
        mine, foreign = state(world.tenant_id), state(other)
        over = state(world.tenant_id, state="ended", error_code="session_lost")
        await store.write(1, 1, [mine, foreign, over])
        seen = (await world.ask("GET", "/v1/sessions", key="invoke")).json["sessions"]
        assert [(row["id"], row["device_name"], row["state"]) for row in seen] == [(str(mine.id), "cpu-0", "attached")]
        assert len((await world.ask("GET", "/v1/sessions")).json["sessions"]) == 2
        assert len((await world.ask("GET", "/v1/sessions?ended=1")).json["sessions"]) == 3


async def test_one_session_is_found_by_its_id_however_many_are_younger(database):
    async with running(database) as world:
        store, now = SessionStore(database), time.time()
        other = await world.registry.create_tenant("other")
        old, foreign = state(world.tenant_id, started_at=now - 9), state(other, started_at=now - 9)
        younger = [state(world.tenant_id, state="ended", started_at=now) for _ in range(1000)]
        await store.write(1, 1, [old, foreign, *younger])
        listed = (await world.ask("GET", "/v1/sessions?ended=1", key="invoke")).json["sessions"]
        assert str(old.id) not in [row["id"] for row in listed]
        for wanted in (str(old.id), str(old.id)[:18]):
            found = (await world.ask("GET", f"/v1/sessions/{wanted}", key="invoke")).json
            assert (found["id"], found["device_name"], found["ended_at"]) == (str(old.id), "cpu-0", None)
        over = (await world.ask("GET", f"/v1/sessions/{younger[0].id}", key="invoke")).json
        assert over["state"] == "ended" and over["ended_at"] is not None
        for wanted in (str(foreign.id), str(foreign.id)[:18]):
            assert (await world.ask("GET", f"/v1/sessions/{wanted}", key="invoke")).status == 404
            assert (await world.ask("GET", f"/v1/sessions/{wanted}")).json["tenant_name"] == "other"


async def test_a_move_is_a_wish_that_its_proxy_finds(database):
    async with running(database) as world:
        store = SessionStore(database)
        mine = state(world.tenant_id)
        await store.write(7, 1, [mine])
        path = f"/v1/sessions/{mine.id}/move"
        assert (await world.ask("POST", path, json={"to": "no-such"})).status == 404
        assert (await world.ask("POST", path)).status == 202  # without a body: anywhere else
        assert await store.asked_moves(7) == [(mine.id, "")]
        assert await store.asked_moves(8) == []
        await store.answer_move(mine.id, "no other device has room")
        (row,) = (await world.ask("GET", "/v1/sessions")).json["sessions"]
        assert (row["move_to"], row["move_error"]) == (None, "no other device has room")


async def test_a_move_to_where_the_session_is_asks_nothing(database):
    async with running(database) as world:
        store = SessionStore(database)
        mine = state(world.tenant_id)
        await store.write(7, 1, [mine])
        refused = await world.ask("POST", f"/v1/sessions/{mine.id}/move", json={"to": "cpu-0"})
        assert (refused.status, "on cpu-0 already" in str(refused.body)) == (409, True)
        assert await store.asked_moves(7) == []
        (row,) = (await world.ask("GET", "/v1/sessions")).json["sessions"]
        assert (row["move_to"], row["move_error"]) == (None, None)


@pytest.mark.parametrize("change", [{"device_id": None}, {"generation": 9}])
async def test_why_a_session_did_not_move_is_forgotten_when_it_has_moved_or_begun_again(database, change):
    async with running(database) as world:
        store = SessionStore(database)
        mine = state(world.tenant_id)
        await store.write(7, 1, [mine])
        await store.answer_move(mine.id, "no other device has room")
        await store.write(7, 1, [dataclasses.replace(mine, bytes_up=mine.bytes_up + 1)])
        (row,) = await store.list_sessions()
        assert row.move_error == "no other device has room"
        await store.write(7, 1, [dataclasses.replace(mine, **change)])
        (row,) = await store.list_sessions()
        assert row.move_error is None


async def test_a_function_host_is_no_device_to_move_to(database):
    async with running(database) as world:
        mine = state(world.tenant_id)
        await SessionStore(database).write(7, 1, [mine])
        place = {"node": "box", "kind": "host", "type": "host", "memory_bytes": 0, "slots": 1, "speed": 1.0}
        where = {"price_nano_per_us": 0, "host_id": "h", "unix_path": None, "tcp_host": None, "tcp_port": None}
        await world.context.devices.register(name="box/host0", **place, **where)
        for to in ("box/host0", "host0"):
            refused = await world.ask("POST", f"/v1/sessions/{mine.id}/move", json={"to": to})
            assert refused.status == 404
            assert "box/host0 is a function host and no device" in refused.json["detail"]


async def test_a_lost_device_is_forgotten_until_it_starts_again(database):
    async with running(database) as world:
        devices = world.context.devices
        (row,) = await devices.list_devices()
        refused = await world.ask("POST", "/v1/devices/cpu-0/forget")
        assert refused.status == 409
        assert "is healthy; only a lost device can be forgotten" in refused.json["detail"]
        assert await devices.mark_lost(row.id, row.incarnation)
        assert (await world.ask("POST", "/v1/devices/cpu-0/forget", key="invoke")).status == 403
        forgotten = await world.ask("POST", "/v1/devices/cpu-0/forget")
        assert (forgotten.status, forgotten.json["name"]) == (200, row.name)
        assert (await world.ask("GET", "/v1/devices")).json["devices"] == []
        assert (await world.ask("POST", "/v1/devices/cpu-0/forget")).status == 404
        await add_device(database, row.name, "cpu")
        (again,) = await devices.list_devices()
        assert (again.id, again.name) == (row.id, row.name)  # its past is still its own
        assert again.incarnation > row.incarnation + 1


async def test_a_drain_outlasts_heartbeats_and_ends_by_a_restore(database):
    async with running(database) as world:
        drained = await world.ask("POST", "/v1/devices/cpu-0/drain")
        assert (drained.status, drained.json["state"]) == (200, "draining")
        devices = world.context.devices
        (row,) = await devices.list_devices()
        assert await devices.set_state(row.id, row.incarnation, "healthy")
        assert (await devices.list_devices())[0].state == "draining"
        assert (await world.ask("POST", f"/v1/devices/{row.id}/restore")).json["state"] == "healthy"
        assert await devices.set_state(row.id, row.incarnation, "suspect")
        assert (await devices.list_devices())[0].state == "suspect"
