"""Calls from their first committed row to their end, with the charge that belongs to it.

Owns the rows of `calls`, `charges`, `postings` and `idempotency_keys`.  The fence is the call's own
row: who finishes must know its attempt.  Every method may be repeated after an unknown outcome.  It
never waits, retries or batches by itself: that is the group commit's work.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import asyncpg

from dgsf.errors import StoreUnavailable
from dgsf.store.database import Database
from dgsf.store.queries import sql
from dgsf.store.rows import CallRow, FinishedCall, OpenCall, Outcome, Reservation

_FINISH = sql("finish_calls")
_ATTEMPTS = sql("attempts_of_calls")
_BEGIN = sql("begin_attempt")
_RESERVE = sql("reserve_key")
_FIND_KEY = sql("find_key")
_RELEASE = sql("release_key")
_FORGET = sql("forget_old_keys")
_CLOSE_UNKNOWN = sql("close_unknown")
_REFUND = sql("refund_calls")
_LANDED = sql("landed_calls")
_GET = sql("get_call")

_OPEN_STATES = ("queued", "running")
_RESERVE_TRIES = 10


async def finish_on(connection: asyncpg.Connection, rows: Sequence[FinishedCall]) -> list[Outcome]:
    """Commits these ends in one statement; an outcome for each, in order. Not guarded."""
    if not rows:
        return []
    unique = {row.id for row in rows}
    if len(unique) != len(rows):
        return await _finish_in_waves(connection, rows)
    written = await connection.fetchval(
        _FINISH,
        [row.id for row in rows],
        [row.attempt for row in rows],
        [row.tenant_id for row in rows],
        [row.version_id for row in rows],
        [row.state for row in rows],
        [row.error_code for row in rows],
        [row.device_id for row in rows],
        [row.queue_us for row in rows],
        [row.device_us for row in rows],
        [row.cost_nano for row in rows],
        [row.created_at for row in rows],
        [row.charged for row in rows],
        [row.response for row in rows],
    )
    if written is None:  # all of them
        return [Outcome.accepted] * len(rows)
    return await _explain(connection, rows, set(written))


async def _finish_in_waves(connection: asyncpg.Connection, rows: Sequence[FinishedCall]) -> list[Outcome]:
    """One statement cannot write a row twice: repeats of an id go into a second one."""
    first: dict[UUID, int] = {}
    again: list[int] = []
    for place, row in enumerate(rows):
        if first.setdefault(row.id, place) != place:
            again.append(place)
    outcomes = [Outcome.stale] * len(rows)
    for places in (list(first.values()), again):
        for place, outcome in zip(places, await finish_on(connection, [rows[p] for p in places]), strict=True):
            outcomes[place] = outcome
    return outcomes


async def _explain(connection: asyncpg.Connection, rows: Sequence[FinishedCall], written: set[UUID]) -> list[Outcome]:
    """Tells repeats of the same end from stale ones, for the rows that were not written."""
    rest = [row.id for row in rows if row.id not in written]
    found = {record["id"]: record for record in await connection.fetch(_ATTEMPTS, rest)} if rest else {}
    return [_outcome(row, row.id in written, found.get(row.id)) for row in rows]


def _outcome(row: FinishedCall, written: bool, found: asyncpg.Record | None) -> Outcome:
    if written:
        return Outcome.accepted
    same = found is not None and (found["attempt"], found["state"]) == (row.attempt, row.state)
    return Outcome.already if same else Outcome.stale


def _opening(call: OpenCall) -> tuple[UUID, int, int, int, float, int | None]:
    """The first six arguments of every statement that may make a call's row."""
    return call.id, call.attempt, call.tenant_id, call.version_id, call.created_at, call.claimed_by


class CallStore:
    """Calls, their charges and their idempotency keys."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def finish(self, rows: Sequence[FinishedCall]) -> list[Outcome]:
        """Commits the ends of these calls and their charges; an outcome for each, in order."""
        async with self._database.acquire() as connection:
            return await finish_on(connection, rows)

    async def begin_attempt(self, call: OpenCall) -> Outcome:
        """Commits a later attempt before it is sent; stale if the call has ended or got further."""
        async with self._database.acquire() as connection:
            begun = await connection.fetchval(_BEGIN, *_opening(call))
        return Outcome.stale if begun is None else Outcome.accepted

    async def reserve_keyed(self, call: OpenCall, key: str, body_hash: bytes) -> Reservation:
        """Takes the key for this call, or tells which call has it."""
        async with self._database.acquire() as connection:
            for _ in range(_RESERVE_TRIES):
                if await connection.fetchval(_RESERVE, *_opening(call), key, body_hash) is not None:
                    return Reservation(True, call.id, True, "running", call.attempt, None)
                held = await connection.fetchrow(_FIND_KEY, call.tenant_id, key)
                if held is not None:
                    return _reservation(held, call, body_hash)
                # Released between the two statements: it is free, so take it.
        raise StoreUnavailable(f"the idempotency key was taken and released {_RESERVE_TRIES} times; try again")

    async def release_keyed(self, tenant_id: int, key: str, call_id: UUID) -> None:
        """Forgets a reservation whose answer is not kept; one whose call has ended stays."""
        async with self._database.acquire() as connection:
            await connection.execute(_RELEASE, tenant_id, key, call_id)

    async def forget_old_keys(self, limit: int = 1000) -> int:
        """Deletes up to `limit` keys older than 24 hours and their kept answers; how many there were."""
        async with self._database.acquire() as connection:
            forgotten: int = await connection.fetchval(_FORGET, limit)
        return forgotten

    async def settle_unknown(self, call: OpenCall, error_code: str) -> CallRow:
        """Ends a call whose caller is told "unknown": uncharged, or refunded if its end had landed."""
        async with self._database.transaction() as connection:
            await connection.execute(_CLOSE_UNKNOWN, *_opening(call), error_code)
            await connection.fetchval(_REFUND, [call.id])
            record = await connection.fetchrow(_GET, call.id)
        return CallRow(**record)

    async def refund(self, call_ids: Sequence[UUID]) -> int:
        """Refunds those that were charged and not yet refunded; how many."""
        async with self._database.acquire() as connection:
            count: int = await connection.fetchval(_REFUND, list(call_ids))
        return count

    async def landed(self, call_ids: Sequence[UUID]) -> set[UUID]:
        """Which of these calls have ended."""
        async with self._database.acquire() as connection:
            records = await connection.fetch(_LANDED, list(call_ids))
        return {record["id"] for record in records}

    async def get(self, call_id: UUID) -> CallRow | None:
        async with self._database.acquire() as connection:
            record = await connection.fetchrow(_GET, call_id)
        return None if record is None else CallRow(**record)


def _reservation(held: asyncpg.Record, call: OpenCall, body_hash: bytes) -> Reservation:
    # A call that finds its own reservation is repeating itself after a lost answer: the key is still its own.
    mine = held["call_id"] == call.id and held["state"] in _OPEN_STATES
    same_body = held["body_hash"] == body_hash
    return Reservation(mine, held["call_id"], same_body, held["state"], held["attempt"], held["response"])
