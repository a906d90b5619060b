"""The I/O of the client: pooled HTTP connections, one pool per process and per event loop.

A pool is never shared over a fork (the child would answer on the parent's sockets), and an async pool
never leaves its loop.  httpx is loaded with the first request, not with the SDK.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from dgsf.errors import ConnectionLost
from dgsf.sdk.plan import Effect, Pause, Reply, Request

if TYPE_CHECKING:
    import httpx

    from dgsf.sdk.connect import Connection

CONNECT_SECONDS = 5.0
MAX_CONNECTIONS = 256
_KEEPALIVE = [  # a platform that vanished without a word is noticed within half a minute
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
]
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class HttpDriver:
    """Sends requests to one platform, blocking or async."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # Keyed by process id, and no lock that a fork could copy while it is held.
        self._by_process: dict[int, httpx.Client] = {}
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopPool] = WeakKeyDictionary()

    @property
    def url(self) -> str:
        return self._connection.url

    def perform(self, effect: Effect) -> Reply | None:
        if isinstance(effect, Pause):
            time.sleep(effect.seconds)
            return None
        import httpx

        try:
            return _reply(self._blocking().request(**_arguments(effect)))
        except KeyboardInterrupt:
            raise KeyboardInterrupt from None  # nor do its frames to whoever pressed Ctrl-C
        except httpx.HTTPError as error:
            raise self._lost(effect, error) from None  # a hundred lines of httpx would say no more

    async def perform_aio(self, effect: Effect) -> Reply | None:
        if isinstance(effect, Pause):
            await asyncio.sleep(effect.seconds)
            return None
        import httpx

        client = await self._for_this_loop()
        try:
            return _reply(await client.request(**_arguments(effect)))
        except httpx.HTTPError as error:
            raise self._lost(effect, error) from None  # a hundred lines of httpx would say no more

    def close(self) -> None:
        """Ends the blocking pool; async pools end with their loops, or by `aclose`."""
        client = self._by_process.pop(os.getpid(), None)
        if client is not None:
            client.close()

    async def aclose(self) -> None:
        """Ends this loop's pool, and the blocking one."""
        self.close()
        pool = self._by_loop.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.end.aclose()

    def _blocking(self) -> httpx.Client:
        pid = os.getpid()
        client = self._by_process.get(pid)
        if client is None:
            import httpx

            made = httpx.Client(**_settings(self._connection, httpx.HTTPTransport))
            client = self._by_process.setdefault(pid, made)
        return client

    async def _for_this_loop(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        pool = self._by_loop.get(loop)
        if pool is None or pool.pid != os.getpid():
            import httpx

            pool = _LoopPool(httpx.AsyncClient(**_settings(self._connection, httpx.AsyncHTTPTransport)))
            self._by_loop[loop] = pool
            await anext(pool.end)
        return pool.client

    def _lost(self, request: Request, error: Exception) -> ConnectionLost:
        import httpx

        name = type(error).__name__
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            text = f"no platform answers at {self.url} ({str(error) or name}); is it running? 'dgsf up' starts one"
            return ConnectionLost(text, sent=False)
        if isinstance(error, httpx.TimeoutException):
            text = f"{self.url} did not answer {request.method} {request.path} within {request.timeout:g} s"
            return ConnectionLost(text, sent=True)
        why = str(error).rstrip(".") or name
        text = f"the connection to {self.url} ended during {request.method} {request.path}: {why}"
        return ConnectionLost(text, sent=True)


class _LoopPool:
    """An async client that ends with its loop: asyncio closes open generators before it closes a loop."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.pid = os.getpid()
        self.client = client
        self.end = self._until_closed(client)

    @staticmethod
    async def _until_closed(client: httpx.AsyncClient) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await client.aclose()


def _settings(connection: Connection, transport: Any) -> dict[str, Any]:
    import httpx

    parts = urlsplit(connection.url)
    local = parts.hostname in _LOOPBACK
    limits = httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS)
    return {
        "base_url": connection.url,
        "headers": {"Authorization": f"Bearer {connection.api_key}", "User-Agent": "dgsf-sdk"},
        "trust_env": not local,  # an HTTP proxy of the site is no way to this machine
        # Plain HTTP needs no certificates, and loading them takes longer than the first call.
        "transport": transport(
            verify=parts.scheme == "https", trust_env=not local, limits=limits, socket_options=_KEEPALIVE
        ),
    }


def _arguments(request: Request) -> dict[str, Any]:
    import httpx

    return {
        "method": request.method,
        "url": request.path,
        "headers": dict(request.headers),
        "params": dict(request.query) or None,
        "content": request.body or None,
        "timeout": httpx.Timeout(request.timeout, connect=CONNECT_SECONDS, pool=request.timeout),
    }


def _reply(response: httpx.Response) -> Reply:
    headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
    return Reply(response.status_code, headers, response.content)
