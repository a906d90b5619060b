"""Calls end once and are charged once, whatever is repeated and whoever races."""

from __future__ import annotations

import asyncio
import random

import asyncpg
import pytest
from store_world import World, make_world

from dgsf.store.rows import Outcome

ACCEPTED, ALREADY, STALE = Outcome.accepted, Outcome.already, Outcome.stale


@pytest.fixture
async def world(database) -> World:
    return await make_world(database)


async def books_are_right(world: World) -> None:
    check = await world.ledger.check()
    assert check.clean, check


async def test_a_finished_call_has_its_row_its_charge_and_two_postings(world):
    row = world.ended(response=b"answer", queue_us=7)
    assert await world.calls.finish([row]) == [ACCEPTED]
    stored = await world.calls.get(row.id)
    assert (stored.state, stored.cost_nano, stored.queue_us, stored.response) == ("succeeded", 300, 7, b"answer")
    assert stored.finished_at is not None and abs(stored.created_at.timestamp() - row.created_at) < 0.001
    check = await world.ledger.check()
    assert (check.charges, check.postings) == (1, 2) and check.clean


async def test_an_empty_flush_is_fine(world):
    assert await world.calls.finish([]) == []


async def test_a_repeated_flush_answers_already_and_charges_nothing(world):
    rows = [world.ended() for _ in range(20)]
    assert await world.calls.finish(rows) == [ACCEPTED] * 20
    fresh = world.ended()
    assert await world.calls.finish([*rows, fresh]) == [ALREADY] * 20 + [ACCEPTED]
    assert (await world.ledger.check()).charges == 21
    await books_are_right(world)


async def test_another_end_of_an_ended_call_is_stale(world):
    row = world.ended()
    await world.calls.finish([row])
    others = [world.ended(row.id, state="failed", error_code="function_error"), world.ended(row.id, attempt=2)]
    assert [await world.calls.finish([other]) for other in others] == [[STALE], [STALE]]
    assert (await world.calls.get(row.id)).state == "succeeded"
    await books_are_right(world)


async def test_the_same_id_twice_in_one_flush_is_written_once(world):
    row, other = world.ended(), world.ended()
    failed = world.ended(row.id, state="failed")
    assert await world.calls.finish([row, other, row, failed, row]) == [ACCEPTED, ACCEPTED, ALREADY, STALE, ALREADY]
    assert (await world.ledger.check()).charges == 2


async def test_an_uncharged_end_costs_nothing_and_leaves_no_charge(world):
    row = world.ended(state="failed", error_code="outcome_unknown", charged=False, cost_nano=999)
    assert await world.calls.finish([row]) == [ACCEPTED]
    assert (await world.calls.get(row.id)).cost_nano == 0
    assert (await world.ledger.check()).charges == 0


async def test_a_free_success_still_has_its_charge_of_zero(world):
    await world.calls.finish([world.ended(device_us=0, cost_nano=0)])
    check = await world.ledger.check()
    assert (check.charges, check.postings, check.uncharged_success) == (1, 2, 0) and check.clean


async def test_one_bad_row_refuses_its_batch_whole(world):
    rows = [world.ended(), world.ended(state="no such state"), world.ended()]
    with pytest.raises(asyncpg.DataError):
        await world.calls.finish(rows)
    assert await world.calls.landed([row.id for row in rows]) == set()
    assert await world.calls.finish([rows[0]]) == [ACCEPTED]
    with pytest.raises(asyncpg.DataError):
        await world.calls.finish([rows[1]])
    assert await world.calls.finish([rows[2]]) == [ACCEPTED]
    await books_are_right(world)


async def test_a_call_of_a_tenant_without_an_account_is_refused_not_lost(world):
    with pytest.raises(asyncpg.NotNullViolationError):
        await world.calls.finish([world.ended(tenant_id=999_999)])


async def test_after_a_new_attempt_has_begun_the_old_one_is_stale(world):
    first = world.ended()
    assert await world.calls.begin_attempt(world.open(first.id, attempt=2)) is ACCEPTED
    assert await world.calls.finish([first]) == [STALE]
    assert await world.calls.finish([world.ended(first.id, attempt=2)]) == [ACCEPTED]
    assert (await world.ledger.check()).charges == 1


async def test_attempts_only_rise_and_never_on_an_ended_call(world):
    call = world.open(attempt=2)
    assert await world.calls.begin_attempt(call) is ACCEPTED
    assert await world.calls.begin_attempt(call) is STALE
    assert await world.calls.begin_attempt(world.open(call.id, attempt=3, claimed_by=9)) is ACCEPTED
    assert (await world.calls.get(call.id)).claimed_by == 9
    await world.calls.finish([world.ended(call.id, attempt=3)])
    assert await world.calls.begin_attempt(world.open(call.id, attempt=4)) is STALE


async def test_an_unknown_outcome_that_had_not_landed_ends_unpaid_and_fences_the_late_finish(world):
    call = world.open()
    settled = await world.calls.settle_unknown(call, "outcome_unknown")
    assert (settled.state, settled.attempt, settled.error_code) == ("failed", 2, "outcome_unknown")
    assert await world.calls.finish([world.ended(call.id)]) == [STALE]
    assert await world.calls.settle_unknown(call, "outcome_unknown") == settled
    assert (await world.ledger.check()).charges == 0


async def test_an_unknown_outcome_that_had_landed_is_refunded_once(world):
    row = world.ended()
    await world.calls.finish([row])
    for _ in range(3):
        settled = await world.calls.settle_unknown(world.open(row.id), "store_unavailable")
        assert settled.state == "succeeded"
    check = await world.ledger.check()
    assert (check.charges, check.postings) == (2, 4) and check.clean
    [usage] = await world.ledger.usage(world.tenant_id)
    assert (usage.calls, usage.refunds, usage.amount_nano, usage.device_us) == (1, 1, 0, 0)


async def test_settling_a_running_attempt_fences_it(world):
    call = world.open(attempt=3)
    await world.calls.begin_attempt(call)
    settled = await world.calls.settle_unknown(call, "outcome_unknown")
    assert (settled.state, settled.attempt) == ("failed", 4)
    assert await world.calls.finish([world.ended(call.id, attempt=3)]) == [STALE]


async def test_finish_racing_settle_leaves_each_call_unpaid_and_the_books_right(world):
    rows = [world.ended() for _ in range(60)]

    async def settle(row):
        await world.calls.settle_unknown(world.open(row.id), "store_unavailable")

    halves = [world.calls.finish(rows[start : start + 10]) for start in range(0, 60, 10)]
    work = [*halves, *(settle(row) for row in rows)]
    random.Random(7).shuffle(work)
    await asyncio.gather(*work)
    await books_are_right(world)
    assert sum(row.amount_nano for row in await world.ledger.usage()) == 0
    assert await world.calls.landed([row.id for row in rows]) == {row.id for row in rows}


async def test_many_finishers_of_one_call_write_it_once(world):
    row = world.ended()
    outcomes = await asyncio.gather(*(world.calls.finish([row]) for _ in range(12)))
    assert sorted(outcome for [outcome] in outcomes) == [ACCEPTED] + [ALREADY] * 11
    assert (await world.ledger.check()).charges == 1


async def test_refund_is_repeatable_and_counts_only_new_ones(world):
    rows = [world.ended() for _ in range(3)]
    await world.calls.finish(rows)
    ids = [row.id for row in rows]
    assert await world.calls.refund(ids[:1]) == 1
    assert await world.calls.refund([*ids, world.ids.mint(1)]) == 2
    assert await world.calls.refund(ids) == 0
    await books_are_right(world)


async def test_landed_tells_ended_calls_only(world):
    row, running = world.ended(), world.open(attempt=2)
    await world.calls.finish([row])
    await world.calls.begin_attempt(running)
    assert await world.calls.landed([row.id, running.id, world.ids.mint(1)]) == {row.id}
    assert await world.calls.get(world.ids.mint(1)) is None


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE charges SET amount_nano = 0",
        "DELETE FROM charges",
        "TRUNCATE charges",
        "UPDATE postings SET amount_nano = 0",
        "DELETE FROM postings",
        "UPDATE calls SET state = 'failed'",
        "UPDATE calls SET attempt = attempt + 1",
        "UPDATE function_versions SET code = ''",
    ],
)
async def test_what_is_written_once_cannot_be_changed(world, statement):
    await world.calls.finish([world.ended()])
    with pytest.raises(asyncpg.RestrictViolationError, match="is refused"):
        await world.database.pool.execute(statement)


async def test_usage_is_per_function_and_within_the_times(world):
    await world.calls.finish([world.ended() for _ in range(4)])
    [usage] = await world.ledger.usage()
    assert (usage.tenant_name, usage.function_name, usage.calls) == ("acme", "square", 4)
    assert (usage.device_us, usage.amount_nano, usage.refunds) == (400, 1200, 0)
    now = await world.database.pool.fetchval("SELECT clock_timestamp()")
    assert await world.ledger.usage(world.tenant_id, since=now) == []
    assert len(await world.ledger.usage(world.tenant_id, until=now)) == 1
    assert await world.ledger.usage(world.tenant_id + 1) == []


async def test_the_check_sees_what_is_wrong(world):
    row = world.ended(charged=False, state="succeeded")
    await world.calls.finish([row])
    await world.database.pool.execute("INSERT INTO postings VALUES ($1, 1, 5)", world.ids.mint(1))
    stray = world.ids.mint(1)
    await world.database.pool.execute(
        "INSERT INTO charges VALUES ($1, 'usage', $1, $2, $3, 1, 1)", stray, world.tenant_id, world.version_id
    )
    check = await world.ledger.check()
    assert (check.uncharged_success, check.orphan_postings, check.orphan_charges, check.unbalanced) == (1, 1, 1, 1)
    assert not check.clean


async def test_the_flush_looks_up_accounts_by_index_and_scans_no_hot_table(world):
    from dgsf.store.queries import sql

    await world.calls.finish([world.ended() for _ in range(50)])
    async with world.database.acquire() as connection, connection.transaction():
        await connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        parameters = ", ".join(f"${number}" for number in range(1, 14))
        assert parameters.split(", ")[-1] in sql("finish_calls")
        await connection.execute(f"PREPARE flush AS {sql('finish_calls')}")
        plan = await connection.fetch(f"EXPLAIN EXECUTE flush({', '.join(['NULL'] * 13)})")
    text = "\n".join(line[0] for line in plan)
    assert "Index Scan using accounts_tenant_id_key" in text
    assert "Seq Scan on c" not in text and "Seq Scan on postings" not in text


async def test_rows_that_make_no_sense_are_found_by_the_check(world):
    await world.calls.finish([world.ended()])
    assert (await world.ledger.check()).clean
    async with world.database.acquire() as connection:
        await connection.execute("UPDATE calls SET queue_us = -1")
    assert (await world.ledger.check()).impossible == 1
