"""Idempotency keys: one call per key, first come first served, for 24 hours."""

from __future__ import annotations

import asyncio

import pytest
from store_world import World, make_world

from dgsf.store.rows import Outcome

BODY, OTHER = b"b" * 32, b"o" * 32


@pytest.fixture
async def world(database) -> World:
    return await make_world(database)


async def test_the_first_reserves_and_the_second_is_told_whom_to_wait_for(world):
    first, second = world.open(), world.open()
    taken = await world.calls.reserve_keyed(first, "k", BODY)
    assert taken.new and taken.call_id == first.id
    told = await world.calls.reserve_keyed(second, "k", BODY)
    assert (told.new, told.call_id, told.same_body, told.state) == (False, first.id, True, "running")
    assert await world.calls.get(second.id) is None


async def test_another_body_under_the_key_is_seen(world):
    await world.calls.reserve_keyed(world.open(), "k", BODY)
    assert not (await world.calls.reserve_keyed(world.open(), "k", OTHER)).same_body


async def test_after_the_end_the_key_gives_the_first_answer_again(world):
    call = world.open()
    await world.calls.reserve_keyed(call, "k", BODY)
    assert await world.calls.finish([world.ended(call.id, response=b"42")]) == [Outcome.accepted]
    again = await world.calls.reserve_keyed(world.open(), "k", BODY)
    assert (again.new, again.state, again.response, again.call_id) == (False, "succeeded", b"42", call.id)
    assert (await world.ledger.check()).charges == 1


async def test_many_at_once_make_one_call(world):
    calls = [world.open() for _ in range(12)]
    answers = await asyncio.gather(*(world.calls.reserve_keyed(call, "k", BODY) for call in calls))
    assert sum(answer.new for answer in answers) == 1
    assert len({answer.call_id for answer in answers}) == 1


async def test_reserving_again_after_a_lost_answer_still_owns_the_key(world):
    call = world.open()
    await world.calls.reserve_keyed(call, "k", BODY)
    assert (await world.calls.reserve_keyed(call, "k", BODY)).new


async def test_keys_of_two_tenants_are_apart(world):
    from dgsf.store.registry import Registry

    await world.calls.reserve_keyed(world.open(), "k", BODY)
    other = World(world.database, await Registry(world.database).create_tenant("other"), world.version_id)
    assert (await other.calls.reserve_keyed(other.open(), "k", BODY)).new


async def test_a_released_key_is_free_and_its_row_gone(world):
    call = world.open()
    await world.calls.reserve_keyed(call, "k", BODY)
    await world.calls.release_keyed(world.tenant_id, "k", call.id)
    assert await world.calls.get(call.id) is None
    assert (await world.calls.reserve_keyed(world.open(), "k", OTHER)).new


async def test_an_ended_call_keeps_its_key(world):
    call = world.open()
    await world.calls.reserve_keyed(call, "k", BODY)
    await world.calls.finish([world.ended(call.id)])
    await world.calls.release_keyed(world.tenant_id, "k", call.id)
    assert not (await world.calls.reserve_keyed(world.open(), "k", BODY)).new


async def test_a_key_past_24_hours_is_taken_over_and_can_be_forgotten(world):
    first, second = world.open(), world.open()
    await world.calls.reserve_keyed(first, "k", BODY)
    await world.calls.reserve_keyed(world.open(), "young", BODY)
    age = "UPDATE idempotency_keys SET created_at = created_at - interval '25 hours' WHERE key = 'k'"
    await world.database.pool.execute(age)
    assert (await world.calls.reserve_keyed(second, "k", OTHER)).call_id == second.id
    await world.database.pool.execute(age)
    assert await world.calls.forget_old_keys() == 1
    assert await world.calls.forget_old_keys() == 0
