"""Records how calls ended: the bill, the group commit, and only then the answer.

A call's terminal state and its charge are committed in one statement before its caller hears of it.  A row
that is refused as stale belongs to somebody else by now; its caller is told that the outcome is unknown.
The same is said of a call that has run when the database is lost; one that never ran keeps its own failure.
"""

from __future__ import annotations

import contextlib

from dgsf.core.invocation import State
from dgsf.core.pricing import cost_nano
from dgsf.errors import (
    DgsfError,
    FunctionCancelled,
    FunctionTimeout,
    OutcomeUnknown,
    ShuttingDown,
    StartDeadlineMissed,
    StoreUnavailable,
    by_code,
)
from dgsf.store.calls import CallStore
from dgsf.store.database import Database
from dgsf.store.flusher import Flusher
from dgsf.store.groupcommit import GroupCommit
from dgsf.store.rows import FinishedCall, OpenCall, Outcome
from dgsf.wire import stored
from dgsf.wire.messages import Failure
from dgsf.wire.ports import CallResult, Payload
from proxy.call import ActiveCall

_STATES = {
    FunctionTimeout.code: State.timed_out,
    FunctionCancelled.code: State.cancelled,
    StartDeadlineMissed.code: State.aborted,
}


class Recorder:
    """Turns the end of a call into a committed row and an answer."""

    def __init__(self, database: Database, proxy_number: int) -> None:
        self._calls = CallStore(database)
        self._flusher = Flusher(database)
        self._proxy = proxy_number
        self._commits: GroupCommit[FinishedCall, Outcome] = GroupCommit(
            self._flusher.flush, self._settle, self._flusher.probe
        )
        self.ended = 0

    @property
    def available(self) -> bool:
        return self._commits.available

    @property
    def commits(self) -> int:
        return self._commits.flushes

    def start(self) -> None:
        self._commits.start()

    async def stop(self) -> None:
        await self._commits.stop()
        with contextlib.suppress(StoreUnavailable):
            await self._flusher.close()

    def finish(self, call: ActiveCall, payload: Payload | None, failure: Failure | None) -> None:
        """Commit and answer; the caller hears from `done`, whatever happens."""
        if call.request.given_up and failure is not None and failure.code == FunctionCancelled.code:
            failure = _given_up(call)
        state = State.succeeded if failure is None else _state_of(call, failure)
        call.life.to(state, failure.code if failure else "")
        charged = (
            failure is None or call.billed_us > 0 or (call.device_id is not None and by_code(failure.code).billable)
        )
        cost = cost_nano(call.billed_us, call.price) + call.session_nano if charged else 0
        result = CallResult(state, payload, failure, call.queue_us, call.billed_us, cost, call.device_name)
        self._commits.submit(self._row(call, result, charged), lambda answer: self._done(call, result, answer))

    async def next_attempt(self, call: ActiveCall) -> Outcome:
        """Commit the attempt's number before the call is sent again."""
        return await self._calls.begin_attempt(self._open(call))

    def _row(self, call: ActiveCall, result: CallResult, charged: bool) -> FinishedCall:
        request = call.request
        return FinishedCall(
            id=request.id,
            attempt=call.life.attempt,
            tenant_id=request.tenant_id,
            version_id=request.version_id,
            state=result.state,
            error_code=result.failure.code if result.failure else None,
            device_id=call.device_id,
            queue_us=call.queue_us,
            device_us=call.billed_us,
            cost_nano=result.cost_nano,
            created_at=call.arrived_wall,
            charged=charged,
            response=stored.encode(result) if request.keep else None,
        )

    def _done(self, call: ActiveCall, result: CallResult, answer: Outcome | DgsfError) -> None:
        self.ended += 1
        call.request.payload.discard()
        if isinstance(answer, DgsfError):
            if not (isinstance(answer, OutcomeUnknown) and result.failure is not None and _never_ran(call)):
                result = _lost(result, answer)
        elif answer == Outcome.stale:
            result = _lost(result, OutcomeUnknown("the call was taken over by another part of the platform"))
        call.stream.finish(result)

    def _open(self, call: ActiveCall) -> OpenCall:
        request = call.request
        return OpenCall(
            id=request.id,
            attempt=call.life.attempt,
            tenant_id=request.tenant_id,
            version_id=request.version_id,
            created_at=call.arrived_wall,
            claimed_by=self._proxy,
        )

    async def _settle(self, row: FinishedCall) -> object:
        """A flush with an unknown outcome: its callers were told so, and nothing of it may stay charged."""
        call = OpenCall(row.id, row.attempt, row.tenant_id, row.version_id, row.created_at, self._proxy)
        return await self._calls.settle_unknown(call, OutcomeUnknown.code)


def _state_of(call: ActiveCall, failure: Failure) -> State:
    """One whose body began and waited for its device in vain is not one that never started."""
    state = _STATES.get(failure.code, State.failed)
    return State.failed if state is State.aborted and call.life.state is State.running else state


def _never_ran(call: ActiveCall) -> bool:
    """It was refused while it waited, and no attempt came before: its caller may safely come again."""
    return call.device_id is None and call.life.attempt == 1


def _given_up(call: ActiveCall) -> Failure:
    """The platform stops before the call's end: that is not the caller's doing, so nothing is charged."""
    call.billed_us = call.session_nano = 0
    if _never_ran(call):
        return Failure.of(ShuttingDown())
    return Failure.of(
        ShuttingDown("the platform is stopping; the call was stopped and is not charged", retryable=False)
    )


def _lost(result: CallResult, error: DgsfError) -> CallResult:
    if result.payload is not None:
        result.payload.discard()
    return CallResult(State.failed, None, Failure.of(error), result.queue_us, 0, 0, result.device)
