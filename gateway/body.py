"""Request bodies: limited before they are read, small ones in memory, large ones streamed to shared memory.

A body that says its length is refused by that; one that does not is counted while it comes.  No body over
the inline limit is ever held as a whole, so the gateway's memory stays flat.
"""

from __future__ import annotations

import asyncio
import errno
import os
from typing import Protocol

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from multidict import istr

from dgsf.core.sizes import describe_bytes
from dgsf.errors import BodyTooLarge, PlatformError, RequestError
from dgsf.wire.messages import Codec
from dgsf.wire.ports import Payload
from dgsf.wire.recycle import KEPT_SECONDS
from dgsf.wire.shared import SharedArea, discard

IDLE_SECONDS = 60.0
_EXPECT = istr("Expect")
_CONTENT_LENGTH = istr("Content-Length")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Hasher(Protocol):
    """What hashlib objects have in common."""

    def update(self, data: bytes, /) -> None: ...


def declared_length(request: web.BaseRequest) -> int | None:
    text = request.headers.get(_CONTENT_LENGTH)
    return int(text) if text is not None and text.isdecimal() else None


class BodyReader:
    """Reads bodies within limits."""

    def __init__(self, area: SharedArea, inline_bytes: int, max_bytes: int) -> None:
        self._area = area
        self._inline = inline_bytes
        self._at_hand = min(inline_bytes, max_bytes)

    def at_hand(self, request: web.BaseRequest) -> bytes | None:
        """The whole body if it has arrived with its head and is small, as most are; else None, untouched."""
        content = request.content
        if not content.is_eof() or content.total_bytes > self._at_hand:
            return None
        return content.read_nowait()

    async def whole(self, request: web.BaseRequest, limit: int, why: str = "") -> bytes:
        """The body as bytes, however large within its limit."""
        payload = await self._receive(request, Codec.raw, limit, limit, None, why, 0)
        return payload.data

    async def payload(
        self,
        request: web.BaseRequest,
        codec: Codec,
        limit: int,
        why: str,
        tenant_id: int,
        hasher: Hasher | None = None,
    ) -> Payload:
        """The body as a payload: inline, or a file in shared memory that the caller discards; `why`: of the limit."""
        payload = await self._receive(request, codec, limit, self._inline, hasher, why, tenant_id)
        if payload.path:  # its file is kept for the tenant's next one, for a while
            asyncio.get_running_loop().call_later(KEPT_SECONDS + 1, self._area.trim)
        return payload

    async def _receive(
        self,
        request: web.BaseRequest,
        codec: Codec,
        limit: int,
        inline: int,
        hasher: Hasher | None,
        why: str,
        tenant_id: int,
    ) -> Payload:
        length = declared_length(request)
        if length is not None and length > limit:
            raise _too_large(limit, why, length)
        _welcome(request)
        sink, loop = _Sink(self._area, inline, tenant_id), asyncio.get_running_loop()
        content, moved = request.content, loop.time()
        try:
            async with asyncio.timeout(IDLE_SECONDS) as idle:
                while not content.at_eof():
                    piece, _ = await content.readchunk()  # as it came: nothing is joined
                    if (now := loop.time()) > moved + 1.0:
                        moved = now
                        idle.reschedule(now + IDLE_SECONDS)
                    if hasher is not None:
                        hasher.update(piece)
                    sink.add(piece)
                    if sink.size > limit:
                        raise _too_large(limit, why)
            return sink.payload(codec)
        except BaseException as error:
            sink.abandon()
            raise _explained(error) from None


def _explained(error: BaseException) -> BaseException:
    if isinstance(error, TimeoutError):
        return RequestError(f"the body stalled: nothing came for {IDLE_SECONDS:g} s")
    if isinstance(error, web.RequestPayloadError | HttpProcessingError):
        return RequestError(f"the body cannot be read: {error}")
    return error


class _Sink:
    """Takes pieces in; spills into a file when they become too many."""

    def __init__(self, area: SharedArea, inline: int, tenant_id: int) -> None:
        self._area = area
        self._inline = inline
        self._tenant_id = tenant_id
        self._pieces: list[bytes] = []
        self._descriptor = -1
        self._path = ""
        self.size = 0

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        if self._descriptor >= 0:
            self._write(piece)
            return
        self._pieces.append(piece)
        if self.size > self._inline:
            self._spill()

    def payload(self, codec: Codec) -> Payload:
        if self._descriptor < 0:
            return Payload(codec, b"".join(self._pieces), "", self.size)
        os.ftruncate(self._descriptor, self.size)  # the file may have held a longer one before
        os.close(self._descriptor)
        self._descriptor = -1
        return Payload(codec, b"", self._path, self.size)

    def abandon(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if self._path:
            discard(self._path)

    def _spill(self) -> None:
        try:
            self._descriptor, self._path = self._area.new_file(self._tenant_id)
        except OSError as error:
            raise _explained_fault(error) from error
        for piece in self._pieces:
            self._write(piece)
        self._pieces.clear()

    def _write(self, piece: bytes) -> None:
        try:
            written = os.write(self._descriptor, piece)
            while written < len(piece):
                written += os.write(self._descriptor, memoryview(piece)[written:])
        except OSError as error:
            raise _explained_fault(error) from error


def _explained_fault(error: OSError) -> Exception:
    """A full shared memory is the platform's trouble, not the caller's."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        return error
    return PlatformError("there is no room for a body of this size now; try again", retry_after=1)


def _welcome(request: web.BaseRequest) -> None:
    """Tell a client that asked first that its body may come."""
    if (request.headers.get(_EXPECT) or "").lower() == "100-continue" and request.transport is not None:
        request.transport.write(_CONTINUE)


def _too_large(limit: int, why: str, size: int | None = None) -> BodyTooLarge:
    """`size`: where it was told beforehand; else reading stopped at the limit."""
    body = "the body" if size is None else f"the body of {describe_bytes(size)}"
    return BodyTooLarge(f"{body} is over the limit of {describe_bytes(limit)}{why}", limit=limit)
