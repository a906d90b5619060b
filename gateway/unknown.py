"""Calls whose outcome nobody can tell: the part that ran them is gone, or has gone silent.

The store has the last word.  Before a caller hears `outcome_unknown`, the call gets an uncharged end that
fences whatever may still run, or a refund if its own end had landed.  If the store is away, that is done
as soon as it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque

from dgsf.errors import DgsfError, OutcomeUnknown, StoreUnavailable
from dgsf.ids import minted_at_ms
from dgsf.store.calls import CallStore
from dgsf.store.catalogue import Function
from dgsf.store.rows import OpenCall
from dgsf.wire import stored
from dgsf.wire.messages import Failure
from dgsf.wire.ports import CallRequest, CallResult, CallStream

log = logging.getLogger(__name__)
SLACK_SECONDS = 30.0
LOOK_SECONDS = 1.0
RETRY_SECONDS = 0.5


def patience(call: CallRequest, function: Function) -> float:
    """Seconds after which even the slowest lawful course of this call must be over."""
    run_us = max(call.timeout_us, function.options.timeout_us)
    start_us = call.start_us * (2 if function.options.over_fabric else 1)  # it waits for a host, then for a device
    return (start_us + run_us) / 1e6 * (function.options.retries + 1) + SLACK_SECONDS


def open_call(call: CallRequest) -> OpenCall:
    return OpenCall(call.id, call.attempt, call.tenant_id, call.version_id, minted_at_ms(call.id) / 1000)


class Watchdog:
    """Ends streams of a proxy that has gone silent; one look per second, no timer per call."""

    def __init__(self) -> None:
        self._open: dict[CallStream, tuple[float, CallRequest, Function]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._look_forever(), name="watchdog")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def watch(self, stream: CallStream, call: CallRequest, function: Function) -> None:
        self._open[stream] = (time.monotonic(), call, function)

    def forget(self, stream: CallStream) -> None:
        self._open.pop(stream, None)

    async def _look_forever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        """End what should have ended long ago."""
        for stream, (since, call, function) in list(self._open.items()):
            if now - since > patience(call, function):
                log.error("proxy_silent", extra={"call_id": str(call.id)})
                del self._open[stream]
                stream.cancel()
                stream.finish(CallResult("failed", None, Failure.of(OutcomeUnknown("the proxy has gone silent"))))


class Settler:
    """Puts an end in the store to calls whose outcome is unknown."""

    def __init__(self, calls: CallStore) -> None:
        self._calls = calls
        self._later: deque[OpenCall] = deque()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._settle_later(), name="settler")

    async def stop(self, timeout: float) -> None:
        """Settle what can still be settled, within the time given."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        with contextlib.suppress(DgsfError, TimeoutError):
            async with asyncio.timeout(timeout):
                await self._settle_waiting()
        if self._later:
            log.warning("calls_left_unsettled", extra={"calls": [str(call.id) for call in self._later]})

    async def settled(self, call: CallRequest, result: CallResult) -> CallResult:
        """What to tell the caller: the kept answer if the call had ended after all, else that nobody knows."""
        opened = open_call(call)
        try:
            if call.keep:
                row = await self._calls.get(call.id)
                if row is not None and row.finished_at is not None and row.response is not None:
                    return stored.decode(row.response)
            await self._calls.settle_unknown(opened, OutcomeUnknown.code)
        except StoreUnavailable:
            self._later.append(opened)
        return result

    async def give_up(self, call: OpenCall) -> None:
        """End a call that its proxy has forgotten."""
        log.warning("call_given_up", extra={"call_id": str(call.id)})
        await self._calls.settle_unknown(call, OutcomeUnknown.code)

    async def _settle_later(self) -> None:
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                await self._settle_waiting()
            except StoreUnavailable:
                continue
            except Exception:
                log.exception("settle_failed")

    async def _settle_waiting(self) -> None:
        while self._later:
            await self._calls.settle_unknown(self._later[0], OutcomeUnknown.code)
            self._later.popleft()
