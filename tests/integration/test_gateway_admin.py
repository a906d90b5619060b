"""Keys and roles, deploying, listings, usage, health and metrics over HTTP."""

from __future__ import annotations

import struct
import sys

import pytest
import pytest_asyncio
from gateway_world import MIB, World, add_device, eventually, fresh_database, packed, running

from dgsf.store.leases import LeaseStore

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def only_world(database_url: str):
    async with fresh_database(database_url) as database, running(database, max_code_bytes=MIB) as found:
        yield found


@pytest.fixture
def world(only_world: World):
    only_world.workers.reset()
    return only_world


# --- keys and roles
@pytest.mark.parametrize(
    "header", [None, "Basic abc", "Bearer", "Bearer nonsense", "Bearer dgsf_abc_def", "Bearer " + "x" * 999]
)
async def test_without_a_valid_key_nothing_is_answered(world: World, header):
    answer = await world.ask("GET", "/v1/functions", key=None, headers={"Authorization": header} if header else {})
    assert (answer.status, answer.code) == (401, "unauthenticated")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


async def test_unknown_wrong_and_revoked_keys_look_the_same(world: World):
    key = await world.registry.create_key(world.tenant_id, "operator", "k")
    assert (await world.ask("GET", "/v1/functions", key=key.text)).status == 200
    wrong = f"dgsf_{key.key_id}_" + "A" * 43
    assert (await world.ask("DELETE", f"/v1/keys/{key.key_id}")).status == 204
    bodies = {(await world.ask("GET", "/v1/functions", key=text)).body for text in (key.text, wrong, "dgsf_x_y")}
    assert len(bodies) == 1


async def test_a_key_revoked_elsewhere_dies_by_itself(world: World):
    key = await world.registry.create_key(world.tenant_id, "invoke", "k")
    assert (await world.ask("GET", "/v1/functions", key=key.text)).status == 200
    await world.registry.revoke_key(world.tenant_id, key.key_id)

    async def dead():
        return (await world.ask("GET", "/v1/functions", key=key.text)).status == 401

    await eventually(dead)


@pytest.mark.parametrize(
    ("role", "method", "path", "allowed"),
    [
        ("invoke", "GET", "/v1/functions", True),
        ("invoke", "GET", "/v1/functions/echo", True),
        ("invoke", "GET", "/v1/devices", True),
        ("invoke", "GET", "/v1/leases", True),
        ("invoke", "GET", "/v1/usage", True),
        ("invoke", "PUT", "/v1/functions/f", False),
        ("invoke", "DELETE", "/v1/functions/f", False),
        ("deploy", "DELETE", "/v1/functions/f", True),
        ("deploy", "GET", "/v1/keys", False),
        ("deploy", "POST", "/v1/keys", False),
        ("deploy", "DELETE", "/v1/keys/x", False),
        ("operator", "GET", "/v1/keys", True),
    ],
)
async def test_a_role_may_what_it_may(world: World, role, method, path, allowed):
    answer = await world.ask(method, path, key=role, data=b"" if method in ("PUT", "POST") else None)
    assert (answer.status != 403) == allowed
    if not allowed:
        assert answer.code == "forbidden"
        assert role in answer.json["detail"]


async def test_keys_are_made_listed_and_revoked(world: World):
    made = await world.ask("POST", "/v1/keys", json={"role": "invoke", "name": "ci"})
    assert made.status == 201
    assert (await world.call()).status == 200
    assert (await world.ask("GET", "/v1/functions", key=made.json["key"])).status == 200
    listed = (await world.ask("GET", "/v1/keys")).json["keys"]
    assert {"key_id": made.json["key_id"], "role": "invoke", "name": "ci"}.items() <= listed[-1].items()
    assert made.json["key"].encode() not in (await world.ask("GET", "/v1/keys")).body
    assert (await world.ask("DELETE", f"/v1/keys/{made.json['key_id']}")).status == 204
    assert (await world.ask("DELETE", f"/v1/keys/{made.json['key_id']}")).status == 404
    assert (await world.ask("GET", "/v1/functions", key=made.json["key"])).status == 401


async def test_the_key_in_use_is_revoked_only_by_force_and_the_refusal_says_what_it_would_do(world: World):
    made = (await world.ask("POST", "/v1/keys", json={"role": "operator", "tenant": "locked-out"})).json
    path, key = f"/v1/keys/{made['key_id']}", made["key"]
    refused = await world.ask("DELETE", path, key=key)
    assert (refused.status, refused.code) == (409, "conflict")
    for words in (made["key_id"], "no operator key is left then", "'dgsf up'", "--force"):
        assert words in refused.json["detail"]
    other = (await world.ask("POST", "/v1/keys", json={"role": "operator"}, key=key)).json["key_id"]
    assert f"operator key {other} stays" in (await world.ask("DELETE", path, key=key)).json["detail"]
    assert (await world.ask("DELETE", f"{path}?force=1", key=key)).status == 204
    assert (await world.ask("GET", "/v1/keys", key=key)).status == 401


async def test_a_key_can_be_made_for_another_tenant(world: World):
    made = await world.ask("POST", "/v1/keys", json={"role": "deploy", "tenant": "newcomer"})
    assert made.json["tenant_name"] == "newcomer"
    assert (await world.ask("GET", "/v1/functions", key=made.json["key"])).json == {"functions": [], "next": None}


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"role": "king"}', b'{"role": "invoke", "x": 1}', b'{"role": "invoke", "name": "\\u0000"}']
)
async def test_a_key_request_that_is_none_is_refused(world: World, body):
    assert (await world.ask("POST", "/v1/keys", data=body)).status == 400


# --- functions
async def test_a_deployed_function_is_described_called_and_listed(world: World):
    made = await world.deploy("first", options={"timeout": 5}, doc="It does.")
    assert made.status == 201
    assert {"name": "first", "version": 1, "options": {"timeout": 5}, "doc": "It does."}.items() <= made.json.items()
    described = (await world.ask("GET", "/v1/functions/first", key="invoke")).json
    assert made.json == {**described, "attach_reason": None}  # nothing was left to choose
    assert (await world.call("first")).status == 200
    assert (await world.deploy("first")).json["version"] == 2
    await world.call("first")
    versions = [request.version_id for request in world.workers.seen]
    assert versions[0] != versions[1]


async def test_a_retired_function_is_gone_until_it_is_deployed_again(world: World):
    await world.deploy("short")
    assert (await world.ask("DELETE", "/v1/functions/short", key="deploy")).status == 204
    assert (await world.call("short")).status == 404
    assert (await world.ask("DELETE", "/v1/functions/short", key="deploy")).status == 404
    await world.deploy("short")
    assert (await world.call("short")).status == 200


async def test_functions_are_listed_in_pages(world: World):
    names, after = [], ""
    for name in ("page-a", "page-b", "page-c"):
        await world.deploy(name)
    while True:
        page = (await world.ask("GET", "/v1/functions", params={"limit": "2", "after": after})).json
        assert len(page["functions"]) <= 2
        names += [item["name"] for item in page["functions"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert names == sorted(names)
    assert {"page-a", "page-b", "page-c", "echo"} <= set(names)
    assert (await world.ask("GET", "/v1/functions?limit=0")).status == 400
    assert (await world.ask("GET", "/v1/functions?limit=many")).status == 400


@pytest.mark.parametrize(
    ("changes", "code", "told"),
    [
        ({"python": "3.9"}, "python_mismatch", "3.9"),
        ({"options": {"tmeout": 3}}, "unknown_option", "timeout"),
        ({"options": {"packages": ["x"]}}, "unknown_option", "later"),
        ({"options": {"timeout": -1}}, "invalid_option", "timeout"),
        ({"options": {"gpu": "H100"}}, "does_not_fit", "H100"),
        ({"options": {"memory": "900GiB"}}, "does_not_fit", "memory"),
        ({"digest": "00" * 32}, "unprocessable", "digest"),
        ({"digest": "not hex"}, "unprocessable", "digest"),
        ({"signature": [{"name": "x", "kind": "ODD", "required": True}]}, "unprocessable", "signature"),
        ({"signature": "none"}, "unprocessable", "metadata"),
        ({"code": b""}, "unprocessable", "code"),
    ],
)
async def test_a_deploy_that_cannot_work_says_why(world: World, changes, code, told):
    answer = await world.deploy("wrong", **changes)
    assert (answer.status, answer.code) == (422, code)
    assert told in answer.json["detail"]
    assert (await world.ask("GET", "/v1/functions/wrong")).status == 404


async def test_both_pythons_are_named(world: World):
    answer = await world.deploy("wrong", python="2.7")
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert (answer.json["packed"], answer.json["workers"]) == ("2.7", ours)


@pytest.mark.parametrize("body", [b"", b"\0\0", struct.pack(">I", 99) + b"{}", struct.pack(">I", 2) + b"\xff\xff"])
async def test_a_body_that_is_no_deploy_is_refused(world: World, body):
    assert (await world.ask("PUT", "/v1/functions/wrong", data=body)).code == "unprocessable"


async def test_code_and_metadata_have_limits(world: World):
    for body in (packed(b"x" * (MIB + 1)), struct.pack(">I", 2**31) + b"{}", packed(b"x" * (3 * MIB))):
        assert (await world.ask("PUT", "/v1/functions/wrong", data=body)).code == "body_too_large"


@pytest.mark.parametrize("name", ["-x", ".x", "a b", "x" * 129, "caf%C3%A9"])
async def test_a_bad_name_is_refused(world: World, name):
    assert (await world.ask("PUT", f"/v1/functions/{name}", data=packed())).code == "invalid_name"


# --- the pool and the bill
async def test_devices_are_shown_without_their_addresses(world: World):
    listed = (await world.ask("GET", "/v1/devices", key="invoke")).json["devices"]
    assert {"name": "cpu-0", "type": "cpu", "slots": 4, "state": "healthy"}.items() <= listed[0].items()
    assert "unix_path" not in listed[0]


async def test_leases_of_others_are_for_operators_only(world: World):
    device = (await world.context.devices.list_devices())[0]
    foreign = await world.registry.create_tenant("foreign")
    mine = (await world.context.catalogue.function(world.tenant_id, "echo")).version.version_id
    leases = LeaseStore(world.database)
    for tenant in (world.tenant_id, foreign):
        assert await leases.grant(device.id, "proxy", 1, mine, tenant, MIB, 60.0)
    everyone = (await world.ask("GET", "/v1/leases")).json["leases"]
    own = (await world.ask("GET", "/v1/leases", key="invoke")).json["leases"]
    assert {item["tenant_name"] for item in everyone} == {"acme", "foreign"}
    assert {item["tenant_name"] for item in own} == {"acme"}


async def test_usage_shows_what_calls_cost(world: World):
    await world.deploy("costly")
    for _ in range(3):
        await world.call("costly")
    for query in ("", "?since=1h", "?since=2020-01-01T00:00:00Z", "?since=2020-01-01"):
        rows = {row["function_name"]: row for row in (await world.ask("GET", f"/v1/usage{query}")).json["usage"]}
        assert (rows["costly"]["calls"], rows["costly"]["device_us"], rows["costly"]["amount_nano"]) == (3, 66, 99)
    assert (await world.ask("GET", "/v1/usage?until=2020-01-01T00:00:00+00:00")).json == {"usage": []}
    assert (await world.ask("GET", "/v1/usage?since=yesterday")).status == 400


# --- the rest
async def test_health_readiness_page_and_description_need_no_key(world: World):
    assert (await world.ask("GET", "/healthz", key=None)).json["status"] == "ok"
    assert (await world.ask("GET", "/readyz", key=None)).json["status"] == "ready"
    assert b"DGSF" in (await world.ask("GET", "/", key=None)).body
    assert (await world.ask("GET", "/openapi.json", key=None)).json["openapi"] == "3.1.0"


async def test_head_is_answered_without_a_body(world: World):
    answer = await world.ask("HEAD", "/healthz")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["Content-Length"]) > 0


async def test_unknown_addresses_and_methods_are_problems(world: World):
    assert (await world.ask("GET", "/nothing")).code == "not_found"
    wrong = await world.ask("PATCH", "/v1/functions/echo")
    assert (wrong.status, wrong.code, wrong.headers["Allow"]) == (405, "method_not_allowed", "PUT, GET, DELETE")
    assert (await world.ask("GET", "/v1/functions/echo/invoke")).status == 405


async def test_metrics_count_what_was_answered(world: World):
    await world.call()
    await world.call("nothing")
    text = (await world.ask("GET", "/metrics", key=None)).body.decode()
    assert 'route="POST /v1/functions/{name}/invoke",status="200"' in text
    assert 'route="POST /v1/functions/{name}/invoke",status="404"' in text
    assert "dgsf_gateway_call_seconds_bucket" in text
    assert "dgsf_gateway_in_flight" in text
    for key in world.keys.values():
        assert key not in text


async def test_a_new_kind_of_device_makes_room_for_its_functions(world: World):
    await add_device(world.database, "gpu-0", "T4")
    assert (await world.deploy("on-t4", options={"gpu": ["H100", "T4"]})).status == 201
