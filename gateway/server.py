"""The gateway itself: a low-level aiohttp server, its dispatch, and an orderly end.

One handler takes every request.  The invoke route is recognised by two string tests; everything else goes
through the route table.  All errors become problem+json here and nowhere else.  Stopping: stop listening,
close idle connections, let running requests end within a bound, give up the calls that are left, which answers them,
cancel the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from aiohttp import web

from dgsf.errors import DgsfError, RequestError
from gateway.auth import authenticate, authorise
from gateway.body import BodyReader
from gateway.context import Context
from gateway.handling import Asked
from gateway.headers import REQUEST_ID, request_id
from gateway.invoke import Invoker
from gateway.metrics import Counters
from gateway.problems import problem, unexpected
from gateway.reply import Reply
from gateway.routes import Match, match

log = logging.getLogger(__name__)
STOP_SECONDS = 10.0
GIVE_UP_SECONDS = 4.0  # for calls that are given up to be answered
BACKLOG = 1024
READ_BYTES = 1024 * 1024
KEEPALIVE_SECONDS = 75.0
LINGER_SECONDS = 2.0
_PREFIX, _SUFFIX = "/v1/functions/", "/invoke"
_INVOKE = "POST /v1/functions/{name}/invoke"
_UNROUTED = "none"


class _Connection(web.RequestHandler):
    """aiohttp's connection; only what it says of requests that are no HTTP is ours."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status >= 500 and exc is not None:
            reply = unexpected(exc)
        else:
            reply = problem(RequestError(f"this is no request that can be read: {(message or str(exc))[:200]}"))
        reply.force_close()
        return reply


class _Server(web.Server):
    """Makes our connections."""

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class Gateway:
    """Listens, answers, stops."""

    def __init__(self, context: Context) -> None:
        self.counters = Counters()
        self._context = context
        settings = context.settings
        self._bodies = BodyReader(context.area, settings.inline_bytes, settings.max_body_bytes)
        self._invoker = Invoker(context, self._bodies, self.counters)
        self._server: _Server | None = None
        self._listener: asyncio.Server | None = None

    async def start(self, host: str, port: int, *, share: bool = False) -> int:
        """Listen; the port that was taken. `share`: other processes may listen on it too."""
        await self._invoker.start()
        self._server = _Server(
            self.handle,
            handler_cancellation=True,  # a caller that goes away is noticed
            access_log=None,
            keepalive_timeout=KEEPALIVE_SECONDS,
            lingering_time=LINGER_SECONDS,
            read_bufsize=READ_BYTES,
        )
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {"reuse_port": True} if share else {}
        self._listener = await loop.create_server(self._server, host, port, backlog=BACKLOG, **options)
        chosen: int = self._listener.sockets[0].getsockname()[1]
        log.info("gateway_listens", extra={"host": host, "port": chosen})
        return chosen

    async def stop(self, timeout: float = STOP_SECONDS) -> None:
        """See the module's words; safe to call on a gateway that did not start."""
        if self._listener is not None:
            self._listener.close()
        if self._server is not None:
            self._server.pre_shutdown()
            giving_up = asyncio.get_running_loop().call_later(timeout, self._invoker.give_up)
            await self._server.shutdown(timeout + GIVE_UP_SECONDS)
            giving_up.cancel()
        if self._listener is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._listener.wait_closed(), timeout)
        await self._invoker.stop(timeout)
        log.info("gateway_stopped")

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer any request."""
        counters = self.counters
        counters.in_flight += 1
        path = request.raw_path
        route = _UNROUTED
        try:
            if path.endswith(_SUFFIX) and path.startswith(_PREFIX) and request.method == "POST" and _plain(path):
                route = _INVOKE
                reply = await self._invoker.invoke(request, path[14:-7])
            else:
                found = match(request.method, path)
                route = found.route.name
                reply = await self._answer(request, found)
        except DgsfError as error:
            reply = problem(error)
        except (asyncio.CancelledError, ConnectionError):
            raise  # the client has gone
        except Exception as error:
            reply = unexpected(error)
        finally:
            counters.in_flight -= 1
        if REQUEST_ID in request.headers:
            reply.extra += request_id(request.headers)
        counters.answered(route, reply.status)
        return reply

    async def _answer(self, request: web.BaseRequest, found: Match) -> Reply:
        route, context = found.route, self._context
        principal = None
        if route.role is not None:
            principal = await authenticate(context.catalogue, request.headers)
            authorise(principal, route.role)
        asked = Asked(request, context, self._bodies, self._invoker, self.counters, principal, found.parameters)
        answer: Reply = await route.handler(asked)
        return answer


def _plain(path: str) -> bool:
    """Whether the name in an invoke path can be taken as it stands."""
    return "%" not in path and "?" not in path and path.count("/") == 4
