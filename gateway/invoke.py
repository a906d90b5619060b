"""The hot path: a request becomes a call, its result becomes the answer.

Order matters: who asks, what is asked for, whether the body may come, whether it binds; only then a call
exists.  A caller that goes away cancels its call, unless the call is keyed.  Nothing here looks inside a
pickle or a raw body.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from uuid import UUID

from aiohttp import web

from dgsf.errors import OutcomeUnknown
from dgsf.ids import CallIds
from dgsf.store.catalogue import Function, Principal
from dgsf.wire.messages import Codec
from dgsf.wire.ports import CallRequest, CallResult, CallStream, Payload
from gateway import jsoncheck
from gateway.auth import authenticate
from gateway.body import BodyReader
from gateway.context import Context
from gateway.failed import FailedCalls
from gateway.headers import CallHeaders, argument_codec, call_headers, reply_codec
from gateway.keyed import KeyedCalls
from gateway.metrics import Counters
from gateway.problems import problem_of_failure
from gateway.reply import BYTES, JSON, PICKLE, FileReply, Reply, header_value
from gateway.unknown import Settler, Watchdog

MAX_JSON_BYTES = 16 * 1024 * 1024
_JSON_WHY = " for JSON; send larger inputs as bytes or by the SDK"
_BODY_WHY = "; the platform's setting DGSF_MAX_BODY_BYTES says so"
_TYPES: dict[int, bytes] = {Codec.json: JSON, Codec.pickle: PICKLE, Codec.raw: BYTES, Codec.none: JSON}
_CALL = b"X-Call-Id: %b\r\nX-Device: %b\r\nX-Queue-Us: %d\r\nX-Device-Us: %d\r\nX-Cost-Nano: %d\r\n"


class Invoker:
    """Runs sync calls through the port."""

    def __init__(self, context: Context, bodies: BodyReader, counters: Counters) -> None:
        self._catalogue = context.catalogue
        self._port = context.port
        self._settings = context.settings
        self._bodies = bodies
        self._counters = counters
        self._ids = CallIds()
        self._start_us = round(context.settings.start_seconds * 1_000_000)
        self._one_large = asyncio.Semaphore(1)
        self._settler = Settler(context.calls)
        self._watchdog = Watchdog()
        self._keyed = KeyedCalls(context.calls, self.run, self._settler)
        self._failed = FailedCalls()
        self._running: dict[CallStream, CallRequest] = {}

    async def start(self) -> None:
        self._watchdog.start()
        self._settler.start()

    def give_up(self) -> None:
        """Stop all calls, so that each is answered before the gateway ends."""
        for stream, call in list(self._running.items()):
            call.given_up = True
            stream.cancel()

    async def stop(self, timeout: float) -> None:
        await self._keyed.stop(timeout)
        await self._watchdog.stop()
        await self._settler.stop(timeout)

    async def invoke(self, request: web.BaseRequest, name: str) -> Reply:
        """Authenticate, read, check, run, answer."""
        began = time.perf_counter()
        principal = await authenticate(self._catalogue, request.headers)
        reply = await self.invoke_as(request, principal, name)
        self._counters.called(time.perf_counter() - began)
        return reply

    async def invoke_as(self, request: web.BaseRequest, principal: Principal, name: str) -> Reply:
        catalogue, headers = self._catalogue, request.headers
        tenant = principal.tenant_id
        function = catalogue.known_function(tenant, name) or await catalogue.function(tenant, name)
        asked = call_headers(headers)
        codec, wanted = argument_codec(headers), reply_codec(headers)
        if asked.key:
            return await self._invoke_keyed(request, principal, function, asked, codec, wanted)
        data = self._bodies.at_hand(request)
        if data is None:
            payload = await self._bodies.payload(request, codec, *self._limit(codec), tenant)
        else:
            payload = Payload(codec, data, "", len(data))
        try:
            if data is None:
                await self._check(function, payload)
            else:
                check_small(function, payload)
            call = self._call(principal, function, payload, wanted, asked)
            result = await self.run(call, function)
        finally:
            if payload.path:
                payload.discard()
        return render(call.id, result, wanted, harmless=function.options.retries > 0)

    async def run(self, call: CallRequest, function: Function) -> CallResult:
        """Through the port; an outcome that nobody knows is settled in the store before anyone hears of it."""
        stream = self._port.open(call)
        self._watchdog.watch(stream, call, function)
        self._running[stream] = call
        try:
            result = await stream.result()
        except asyncio.CancelledError:
            stream.cancel()
            stream.when_ended(_drop)
            raise
        finally:
            self._watchdog.forget(stream)
            del self._running[stream]
        return result if result.failure is None else await self._told(call, function, result)

    async def _told(self, call: CallRequest, function: Function, result: CallResult) -> CallResult:
        if result.failure is not None and result.failure.code == OutcomeUnknown.code:
            result = await self._settler.settled(call, result)
        self._failed.tell(call, function, result)
        return result

    async def _invoke_keyed(
        self,
        request: web.BaseRequest,
        principal: Principal,
        function: Function,
        asked: CallHeaders,
        codec: Codec,
        wanted: Codec,
    ) -> Reply:
        hasher = hashlib.sha256(b"%d %d %d " % (function.version.function_id, codec, wanted))
        payload = await self._bodies.payload(request, codec, *self._limit(codec), principal.tenant_id, hasher)
        try:
            await self._check(function, payload)
        except BaseException:
            payload.discard()
            raise
        call = self._call(principal, function, payload, wanted, asked)
        call.keep = True
        # The call outlives this request: from here on the payload belongs to it.
        call_id, result = await self._keyed.run(call, function, asked.key, hasher.digest())
        return render(call_id, result, wanted, harmless=True)

    def _call(
        self, principal: Principal, function: Function, payload: Payload, wanted: Codec, asked: CallHeaders
    ) -> CallRequest:
        return CallRequest(
            self._ids.mint(self._port.number_for(function.version.version_id)),
            principal.tenant_id,
            function.version.version_id,
            payload,
            wanted,
            asked.start_us or self._start_us,
            asked.timeout_us,
            asked.priority,
        )

    async def _check(self, function: Function, payload: Payload) -> None:
        """That the arguments bind, whatever their size."""
        if payload.path and payload.codec == Codec.json:
            # One at a time and beside the loop: a parsed body can be many times its size.
            async with self._one_large:
                await asyncio.to_thread(lambda: function.binder.check(jsoncheck.parse(payload.read())))
        else:
            check_small(function, payload)

    def _limit(self, codec: Codec) -> tuple[int, str]:
        """How large a body may be, and why, for whoever sends a larger one."""
        limit = self._settings.max_body_bytes
        if codec == Codec.json and limit > MAX_JSON_BYTES:
            return MAX_JSON_BYTES, _JSON_WHY
        return limit, _BODY_WHY


def check_small(function: Function, payload: Payload) -> None:
    """That the arguments bind; pickled ones are for the worker to open."""
    if payload.codec == Codec.json:
        function.binder.check(jsoncheck.parse(payload.data) if payload.data else {})
    elif payload.codec == Codec.raw:
        function.binder.check_count(1)


def render(call_id: UUID, result: CallResult, wanted: Codec, *, harmless: bool) -> Reply:
    """The answer of a call; the same result always gives the same bytes."""
    text = str(call_id)
    extra = _CALL % (text.encode(), header_value(result.device), result.queue_us, result.device_us, result.cost_nano)
    if result.failure is not None:
        keep_pickle = wanted == Codec.pickle
        return problem_of_failure(
            result.failure, call_id=text, extra=extra, keep_pickle=keep_pickle, retryable=harmless
        )
    payload = result.payload
    if payload is None:
        return Reply(200, JSON, b"null", extra)
    content = _TYPES.get(payload.codec, BYTES)
    if payload.path:
        return FileReply(content, payload, extra)
    return Reply(200, content, payload.data if payload.codec else b"null", extra)


def _drop(result: CallResult) -> None:
    """Nobody is left to read it."""
    if result.payload is not None:
        result.payload.discard()
