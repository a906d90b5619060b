"""The proxies apart, as one CallPort: routes calls by rendezvous hash, spills over, recovers what was lost.

A proxy that does not answer for a while is given up: its connection is closed and each of its calls is
recovered: a function that allows retries runs again elsewhere, under the next attempt, which fences whatever
the lost proxy may still write; any other call ends as `outcome_unknown`, for the caller to settle.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any

from dgsf.config import Settings
from dgsf.core.rendezvous import ranked
from dgsf.core.retry import try_again
from dgsf.errors import (
    ConnectionLost,
    DgsfError,
    OutcomeUnknown,
    PlatformError,
    QueueFull,
    ShuttingDown,
    StoreUnavailable,
)
from dgsf.ids import minted_at_ms
from dgsf.store.calls import CallStore
from dgsf.store.catalogue import Catalogue
from dgsf.store.proxies import ProxyStore
from dgsf.store.rows import OpenCall, Outcome, ProxyRow
from dgsf.wire.link import Address, host_id
from dgsf.wire.messages import Failure
from dgsf.wire.ports import CallRequest, CallResult, CallStream
from dgsf.wire.proxy_link import ProxyLink
from dgsf.wire.shared import SharedArea

log = logging.getLogger(__name__)
BEAT_SECONDS = 0.5
SILENT_BEATS = 6
KNOWN_SECONDS = 10.0
ELSEWHERE_SECONDS = 10.0
_REFUSED = (QueueFull.code, ShuttingDown.code)  # nothing ran: another proxy may take it


class Fleet:
    """All proxies that answer."""

    def __init__(
        self,
        settings: Settings,
        secret: bytes,
        area: SharedArea,
        proxies: ProxyStore,
        calls: CallStore,
        catalogue: Catalogue,
    ) -> None:
        self._settings = settings
        self._secret = secret
        self._area = area
        self._proxies = proxies
        self._calls = calls
        self._catalogue = catalogue
        self._here = host_id()
        self._links: dict[str, ProxyLink] = {}
        self._pulses: dict[ProxyLink, _Pulse] = {}
        self._orders: dict[int, list[str]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Event()

    async def start(self) -> None:
        with contextlib.suppress(StoreUnavailable):
            await self._meet()
        self._later(_forever(self._meet))
        self._later(_forever(self._feel_pulses))

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in list(self._links.values()):
            link.close()

    @property
    def ready(self) -> bool:
        return bool(self._links)

    # --- CallPort
    def number_for(self, version_id: int) -> int:
        link = self._link_for(version_id)
        return link.number if link else 0

    def open(self, request: CallRequest) -> CallStream:
        relay = _Relay()
        stream = CallStream(relay.cancel)
        self._send(request, stream, relay, self._link_for(request.version_id))
        return stream

    def _send(self, request: CallRequest, stream: CallStream, relay: _Relay, link: ProxyLink | None) -> None:
        if link is None:
            stream.finish(_failed(PlatformError("no proxy answers now")))
            return
        relay.tried.add(link)
        inner = link.open(request)
        relay.cancel_inner = inner.cancel
        inner.when_ended(lambda result: self._ended(request, stream, relay, result))

    def _ended(self, request: CallRequest, stream: CallStream, relay: _Relay, result: CallResult) -> None:
        code = result.failure.code if result.failure else ""
        if code == ConnectionLost.code and not result.device:
            self._later(self._recover(request, stream, relay))
        elif relay.cancelled:
            stream.finish(result)
        elif code in _REFUSED and (other := self._link_for(request.version_id, relay.tried)) is not None:
            self._send(request, stream, relay, other)
        elif code in _REFUSED and request.attempt > 1:  # its row is open since the first attempt was lost
            stream.finish(_failed(OutcomeUnknown()))
        else:
            stream.finish(result)

    # --- routing
    def _link_for(self, version_id: int, beside: Collection[ProxyLink] = ()) -> ProxyLink | None:
        order = self._orders.get(version_id)
        if order is None:
            order = self._orders[version_id] = ranked(str(version_id), list(self._links))
        for name in order:
            link = self._links.get(name)
            if link is not None and not link.lost and link not in beside:
                return link
        return None

    # --- what a lost proxy leaves behind
    async def _recover(self, request: CallRequest, stream: CallStream, relay: _Relay) -> None:
        """The proxy that had this call is gone: run it elsewhere if that is allowed, else nobody knows."""
        try:
            link = None if relay.cancelled else await self._elsewhere(request)
        except DgsfError as error:
            log.warning("recovery_failed", extra={"call_id": str(request.id), "error": str(error)})
            link = None
        except Exception:
            log.exception("recovery_failed", extra={"call_id": str(request.id)})
            link = None
        if link is None:
            stream.finish(_failed(OutcomeUnknown()))  # whoever asked settles it with the store
        else:
            relay.tried.clear()  # another attempt, another round
            self._send(request, stream, relay, link)

    async def _elsewhere(self, request: CallRequest) -> ProxyLink | None:
        """Another proxy for the next attempt; the attempt is committed first, which fences the lost proxy."""
        function = await self._catalogue.version(request.version_id)
        if not try_again(OutcomeUnknown.code, request.attempt, function.options.retries):
            return None
        created = minted_at_ms(request.id) / 1000
        following = OpenCall(request.id, request.attempt + 1, request.tenant_id, request.version_id, created)
        if await self._calls.begin_attempt(following) == Outcome.stale:
            return None
        request.attempt += 1
        return await self._wait_for_link(request.version_id)

    async def _wait_for_link(self, version_id: int) -> ProxyLink | None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ELSEWHERE_SECONDS):
                while (link := self._link_for(version_id)) is None:
                    self._changed.clear()
                    await self._changed.wait()
                return link
        return None

    # --- who is there
    async def _meet(self) -> None:
        for row in await self._proxies.list_proxies(KNOWN_SECONDS):
            link = self._links.get(row.name)
            if row.unix_path and (link is None or link.lost):
                await self._connect(row)

    async def _connect(self, row: ProxyRow) -> None:
        settings = self._settings
        limit = max(settings.max_body_bytes, settings.max_result_bytes)
        try:
            link = await ProxyLink.connect(
                Address.of(row),
                row.number,
                self._secret,
                self._area,
                settings.inline_bytes,
                limit,
                here=self._here,
                tcp=settings.transport == "tcp",
            )
        except DgsfError as error:
            log.info("proxy_unreachable", extra={"proxy": row.name, "error": str(error)})
            return
        self._links[row.name] = link
        self._pulses[link] = _Pulse(link)
        link.on_lost = lambda: self._forget(row.name, link)
        self._orders.clear()
        self._changed.set()

    def _forget(self, name: str, link: ProxyLink) -> None:
        self._pulses.pop(link, None)
        if self._links.get(name) is link:
            del self._links[name]
            self._orders.clear()

    async def _feel_pulses(self) -> None:
        for link, pulse in list(self._pulses.items()):
            if pulse.beat() >= SILENT_BEATS:
                link.close(ConnectionLost("the proxy does not answer"))

    def _later(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Relay:
    """Passes a caller's cancel on to whichever attempt runs now; knows who has refused the call."""

    def __init__(self) -> None:
        self.cancelled = False
        self.tried: set[ProxyLink] = set()
        self.cancel_inner: Callable[[], None] = lambda: None

    def cancel(self) -> None:
        self.cancelled = True
        self.cancel_inner()


class _Pulse:
    """Whether a proxy answers our pings.

    Counted in beats, not in seconds: after a pause of our own the answers are here, only not yet read.
    """

    def __init__(self, link: ProxyLink) -> None:
        self._link = link
        self._asked: float | None = None  # the time of the oldest ping without an answer
        self._missed = 0

    def beat(self) -> int:
        """Ask; returns for how many beats there was no answer."""
        now = asyncio.get_running_loop().time()
        if self._asked is not None and self._link.silent_us() > (now - self._asked) * 1e6:
            self._missed += 1
        else:
            self._asked, self._missed = now, 0
        self._link.ping()
        return self._missed


async def _forever(work: Callable[[], Awaitable[None]]) -> None:
    """One beat after another, whatever happens in one of them."""
    while True:
        try:
            await work()
        except StoreUnavailable:
            log.info("proxies_unknown")  # those that we have stay in use
        except Exception:
            log.exception("beat_failed")
        await asyncio.sleep(BEAT_SECONDS)


def _failed(error: DgsfError) -> CallResult:
    return CallResult("failed", None, Failure.of(error))
