"""Calls with an Idempotency-Key: one key, one call, one answer.

The key is reserved in the store before the call is dispatched.  A repeat joins the call if it runs in this
process, waits for it in the store if it runs elsewhere, or gets the kept answer, byte for byte.  A call
that ended without a charge (refused, or failed by the platform) frees its key.  A keyed call goes on when
its caller goes away.  Answers over stored.MAX_KEPT_BYTES are delivered once and not kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

from dgsf.core.invocation import TERMINAL, State
from dgsf.errors import Conflict, DgsfError, IdempotencyMismatch, OutcomeUnknown, by_code
from dgsf.ids import minted_at_ms, same_digest
from dgsf.store.calls import CallStore
from dgsf.store.catalogue import Function
from dgsf.store.rows import OpenCall, Reservation
from dgsf.wire import stored
from dgsf.wire.ports import CallRequest, CallResult
from gateway.unknown import Settler, open_call, patience

log = logging.getLogger(__name__)
FIRST_LOOK_SECONDS = 0.05
LAST_LOOK_SECONDS = 0.5
Run = Callable[[CallRequest, Function], Awaitable[CallResult]]
Slot = tuple[int, str]


@dataclass(frozen=True, slots=True)
class _Answer:
    call_id: UUID
    result: CallResult
    kept: bytes


@dataclass(frozen=True, slots=True)
class _Running:
    body_hash: bytes
    task: asyncio.Task[_Answer]


class KeyedCalls:
    """The keyed calls of this process."""

    def __init__(self, calls: CallStore, run: Run, settler: Settler) -> None:
        self._calls = calls
        self._run = run
        self._settler = settler
        self._running: dict[Slot, _Running] = {}
        self._tasks: set[asyncio.Task[_Answer]] = set()

    async def run(self, call: CallRequest, function: Function, key: str, body_hash: bytes) -> tuple[UUID, CallResult]:
        """The key's call and its result; takes over the call's payload."""
        slot = (call.tenant_id, key)
        there = self._running.get(slot)
        if there is not None and same_digest(there.body_hash, body_hash):
            call.payload.discard()
            answer = await asyncio.shield(there.task)
            return answer.call_id, stored.decode(answer.kept)
        task = asyncio.create_task(self._lead(call, function, key, body_hash))
        if there is None:  # else the one there has another body, and only the store knows whose the key is
            self._running[slot] = _Running(body_hash, task)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(slot, done))
        try:
            answer = await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_drop_result)
            raise
        return answer.call_id, answer.result

    async def stop(self, timeout: float) -> None:
        """Let running ones end, for a while."""
        if self._tasks:
            _, left = await asyncio.wait(list(self._tasks), timeout=timeout)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    def _ended(self, slot: Slot, done: asyncio.Task[_Answer]) -> None:
        self._tasks.discard(done)
        running = self._running.get(slot)
        if running is not None and running.task is done:
            del self._running[slot]
        if not done.cancelled() and (error := done.exception()) is not None and not isinstance(error, DgsfError):
            log.error("keyed_call_failed", exc_info=error)

    async def _lead(self, call: CallRequest, function: Function, key: str, body_hash: bytes) -> _Answer:
        deadline = time.monotonic() + patience(call, function)
        try:
            while True:
                found = await self._calls.reserve_keyed(open_call(call), key, body_hash)
                if found.new:
                    return await self._first(call, function, key)
                if not found.same_body:
                    raise IdempotencyMismatch
                if State(found.state) in TERMINAL:
                    return _replay(found)
                await self._wait_elsewhere(call, function, found, deadline)
        finally:
            call.payload.discard()

    async def _first(self, call: CallRequest, function: Function, key: str) -> _Answer:
        result = await self._run(call, function)
        failure = result.failure
        if failure is not None and by_code(failure.code).status in (429, 503):
            with contextlib.suppress(DgsfError):  # else it is freed by its uncharged end, or in 24 hours
                await self._calls.release_keyed(call.tenant_id, key, call.id)
        return _Answer(call.id, result, stored.encode(result))

    async def _wait_elsewhere(self, call: CallRequest, function: Function, found: Reservation, deadline: float) -> None:
        """Until the key's call has ended, was released, or must be given up."""
        orphan_at = minted_at_ms(found.call_id) / 1000 + patience(call, function)
        pause = FIRST_LOOK_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LAST_LOOK_SECONDS)
            row = await self._calls.get(found.call_id)
            if row is None or row.finished_at is not None:
                return
            if time.time() > orphan_at:
                created = row.created_at.timestamp()
                await self._settler.give_up(OpenCall(row.id, row.attempt, row.tenant_id, row.version_id, created))
                return
            if time.monotonic() > deadline:
                raise OutcomeUnknown("the first call with this key has not ended yet", retryable=True)


def _replay(found: Reservation) -> _Answer:
    if found.response is None:
        raise Conflict("the call with this key has ended and its answer was not kept; use another key")
    return _Answer(found.call_id, stored.decode(found.response), found.response)


def _drop_result(done: asyncio.Task[_Answer]) -> None:
    if not done.cancelled() and done.exception() is None and (payload := done.result().result.payload) is not None:
        payload.discard()
