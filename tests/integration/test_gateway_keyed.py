"""Idempotency keys over HTTP: one key, one call, one answer."""

from __future__ import annotations

import asyncio
import time
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from gateway_world import MIB, World, eventually, failing, fresh_database, running

from dgsf.ids import CallIds
from dgsf.store.ledger import Ledger
from dgsf.store.rows import OpenCall
from dgsf.wire import stored
from dgsf.wire.messages import Codec
from dgsf.wire.ports import CallResult, Payload

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(database_url: str):
    """Two gateways, each with its own workers, over one database."""
    async with fresh_database(database_url) as database, running(database) as one, running(database) as two:
        yield one, two


@pytest.fixture
def world(pair):
    for found in pair:
        found.workers.reset()
    return pair[0]


@pytest.fixture
def other(pair, world):
    return pair[1]


@pytest.fixture
def key():
    return uuid4().hex


def same(first, again):
    left, right = dict(first.headers), dict(again.headers)
    left.pop("Date"), right.pop("Date")
    assert (first.status, first.body, left) == (again.status, again.body, right)


async def test_a_repeat_gets_the_first_answer_byte_for_byte(world: World, key):
    first = await world.call(body=b'{"x": 1}', Idempotency_Key=key)
    world.workers.behaviour = failing("function_error")
    same(first, await world.call(body=b'{"x": 1}', Idempotency_Key=key))
    assert first.status == 200
    assert len(world.workers.seen) == 1
    seen = world.workers.seen[0]
    assert seen.keep


async def test_a_functions_failure_is_an_answer_too(world: World, key):
    world.workers.behaviour = failing("function_error", "ValueError: no", error={"type": "ValueError"})
    first = await world.call(Idempotency_Key=key)
    world.workers.reset()
    same(first, await world.call(Idempotency_Key=key))
    assert first.code == "function_error"
    assert not world.workers.seen


async def test_a_repeat_at_another_gateway_gets_the_same_answer(world: World, other: World, key):
    first = await world.call(Idempotency_Key=key)
    same(first, await other.call(Idempotency_Key=key))
    assert not other.workers.seen


@pytest.mark.parametrize("body", [b'{"x": 2}', b"{}"])
async def test_another_body_under_the_same_key_is_refused(world: World, other: World, key, body):
    await world.call(body=b'{"x": 1}', Idempotency_Key=key)
    for gateway in (world, other):
        answer = await gateway.call(body=body, Idempotency_Key=key)
        assert (answer.status, answer.code) == (422, "idempotency_mismatch")


async def test_another_function_under_the_same_key_is_refused(world: World, key):
    await world.call("echo", Idempotency_Key=key)
    assert (await world.call("again", Idempotency_Key=key)).code == "idempotency_mismatch"


async def test_the_same_key_of_another_tenant_is_another_key(world: World, key):
    tenant = await world.registry.create_tenant(f"t-{key}")
    text = (await world.registry.create_key(tenant, "operator", "k")).text
    metadata = {"signature": [], "options": {}, "python": "3.11"}
    await world.registry.deploy(tenant, "echo", b"d" * 32, metadata, b"code")
    mine = await world.call(Idempotency_Key=key)
    theirs = await world.ask("POST", "/v1/functions/echo/invoke", key=text, json={}, headers={"Idempotency-Key": key})
    assert theirs.status == 200
    assert mine.headers["X-Call-Id"] != theirs.headers["X-Call-Id"]


async def test_repeats_join_the_running_call(world: World, key):
    release = world.workers.hold()
    tasks = [asyncio.create_task(world.call(Idempotency_Key=key)) for _ in range(5)]
    await eventually(lambda: world.gateway.counters.in_flight == 5 and world.workers.seen)  # so the key is theirs
    mismatch = await world.call(body=b"[1]", Idempotency_Key=key)
    release.set()
    answers = await asyncio.gather(*tasks)
    for answer in answers[1:]:
        same(answers[0], answer)
    assert len(world.workers.seen) == 1
    assert mismatch.code == "idempotency_mismatch"


async def test_a_repeat_elsewhere_waits_for_the_running_call(world: World, other: World, key):
    release = world.workers.hold()
    first = asyncio.create_task(world.call(Idempotency_Key=key))
    await eventually(lambda: world.workers.seen)
    again = asyncio.create_task(other.call(Idempotency_Key=key))
    await eventually(lambda: other.gateway.counters.in_flight == 1)
    release.set()
    same(await first, await again)
    assert not other.workers.seen


async def test_a_keyed_call_goes_on_when_its_caller_goes_away(world: World, key):
    release = world.workers.hold()
    task = asyncio.create_task(world.call(Idempotency_Key=key))
    await eventually(lambda: world.workers.seen)
    task.cancel()
    await eventually(lambda: not world.gateway.counters.in_flight)
    release.set()
    answer = await world.call(Idempotency_Key=key)
    assert answer.headers["X-Call-Id"] == str(world.workers.seen[0].id)
    assert not world.workers.cancelled
    assert len(world.workers.seen) == 1


@pytest.mark.parametrize("code", ["queue_full", "no_device", "start_deadline_missed", "outcome_unknown"])
async def test_a_refusal_is_not_kept_and_frees_the_key(world: World, other: World, key, code):
    world.workers.behaviour = failing(code)
    first = await world.call(Idempotency_Key=key)
    assert (first.code, first.json["retryable"]) == (code, True)
    again = await other.call(body=b'{"x": 5}', Idempotency_Key=key)
    assert (again.status, again.body) == (200, b'{"x": 5}')
    assert again.headers["X-Call-Id"] != first.headers["X-Call-Id"]


async def test_bad_arguments_do_not_use_the_key_up(world: World, key):
    assert (await world.call("one", b"[1, 2]", Idempotency_Key=key)).code == "invalid_arguments"
    assert (await world.call("one", b"[1]", Idempotency_Key=key)).status == 200


async def test_an_answer_that_landed_before_its_proxy_was_lost_is_found_in_the_store(world: World, key, monkeypatch):
    def lost_after_commit(request):
        return failing("outcome_unknown")(request)

    release = world.workers.hold()
    task = asyncio.create_task(world.call(Idempotency_Key=key))
    await eventually(lambda: world.workers.seen)
    result = CallResult("succeeded", Payload.of(Codec.json, b'"landed"'), None, 1, 2, 3, "cpu-9")
    await world.workers._commit(world.workers.seen[0], result)
    world.workers.behaviour = lost_after_commit
    release.set()
    answer = await task
    assert (answer.status, answer.body, answer.headers["X-Device"]) == (200, b'"landed"', "cpu-9")


async def test_a_large_answer_comes_once_and_is_told_of_later(world: World, key):
    body = b"x" * (2 * MIB)
    first = await world.call(body=body, kind="application/octet-stream", Idempotency_Key=key)
    again = await world.call(body=body, kind="application/octet-stream", Idempotency_Key=key)
    assert first.body == body
    assert (again.status, again.code, again.headers["X-Call-Id"]) == (409, "conflict", first.headers["X-Call-Id"])
    assert str(stored.MAX_KEPT_BYTES) in again.json["detail"]
    assert not world.shared_files()


async def test_a_call_that_its_proxy_forgot_is_given_up_and_the_key_used_again(world: World, key):
    """Reserved long ago by a process that is gone: past every lawful deadline its row is closed."""
    long_ago = time.time() - 3600
    version = (await world.context.catalogue.function(world.tenant_id, "echo")).version
    call_id = CallIds().mint(3, int(long_ago * 1000))
    import hashlib

    body_hash = hashlib.sha256(b"%d %d %d {}" % (version.function_id, Codec.json, Codec.json)).digest()
    opened = OpenCall(call_id, 1, world.tenant_id, version.version_id, long_ago, 3)
    assert (await world.calls.reserve_keyed(opened, key, body_hash)).new
    answer = await world.call(Idempotency_Key=key)
    assert answer.status == 200
    row = await world.calls.get(call_id)
    assert row is not None
    assert (row.state, row.error_code) == ("failed", "outcome_unknown")


async def test_every_answered_call_has_one_charge(world: World):
    key = uuid4().hex
    answers = await asyncio.gather(*(world.call(Idempotency_Key=key) for _ in range(3)), world.call(), world.call())
    ids = {UUID(answer.headers["X-Call-Id"]) for answer in answers}
    assert len(ids) == 3
    assert await world.calls.landed(list(ids)) == ids
    assert (await Ledger(world.database).check()).clean
