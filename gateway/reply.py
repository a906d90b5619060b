"""Answers, written straight to the connection.

aiohttp reads requests; its own response classes cost more than all of the gateway's work on a call, so a
`Reply` puts its head together with one formatting and writes head and body in one piece.  `FileReply`
sends a large result out of shared memory piece by piece and discards it.  Nothing here decides anything.
"""

from __future__ import annotations

import os
import time
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from dgsf.wire.ports import Payload

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter

JSON = b"application/json"
PROBLEM = b"application/problem+json"
PICKLE = b"application/vnd.dgsf.pickle"
BYTES = b"application/octet-stream"
PIECE_BYTES = 1024 * 1024
_HEAD = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\nDate: %b\r\nServer: dgsf\r\n%b\r\n"
_BARE = b"HTTP/1.1 %b\r\nDate: %b\r\nServer: dgsf\r\n%b\r\n"
_ENCODER = msgspec.json.Encoder()
_CLIENT_GONE = 499


def _phrase(status: int) -> str:
    return "Client Closed Request" if status == _CLIENT_GONE else HTTPStatus(status).phrase


_STATUS = {code: f"{code} {_phrase(code)}".encode() for code in (*map(int, HTTPStatus), _CLIENT_GONE)}


class _Date:
    """The Date header, formatted once per second."""

    def __init__(self) -> None:
        self._second = 0
        self._text = b""

    def now(self) -> bytes:
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._text = formatdate(second, usegmt=True).encode()
        return self._text


_DATE = _Date()


@lru_cache(maxsize=4096)
def header_value(text: str) -> bytes:
    """Text as it may stand in a header: printable ASCII, nothing that could end the line."""
    return bytes(c if 0x20 <= c < 0x7F else 0x3F for c in text.encode("ascii", "replace")[:256])


class Reply(web.StreamResponse):
    """A whole answer; `extra` is further header lines, each ended."""

    def __init__(self, status: int, content_type: bytes, body: bytes, extra: bytes = b"") -> None:
        # The base class is not initialised: none of its state is used, and it costs microseconds.
        self._status = status
        self._keep_alive = None
        self.content = content_type
        self.data = body
        self.extra = extra

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        head = self._head(request, len(self.data))
        _write(request, head if request.method == "HEAD" else head + self.data)
        await request.writer.drain()
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """All is written already."""

    def _head(self, request: web.BaseRequest, size: int) -> bytes:
        keep = request.keep_alive if self._keep_alive is None else self._keep_alive
        self._keep_alive = keep
        extra = self.extra
        if not keep:
            extra += b"Connection: close\r\n"
        elif request.version.minor == 0:
            extra += b"Connection: keep-alive\r\n"
        if self._status == HTTPStatus.NO_CONTENT:
            return _BARE % (_STATUS[204], _DATE.now(), extra)
        return _HEAD % (_STATUS[self._status], self.content, size, _DATE.now(), extra)


class FileReply(Reply):
    """A result in shared memory, sent in pieces with its length known.

    It is read, not mapped: whoever wrote it could cut it short meanwhile, and a mapping would kill us.
    """

    def __init__(self, content_type: bytes, payload: Payload, extra: bytes = b"") -> None:
        super().__init__(200, content_type, b"", extra)
        self._payload = payload

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        try:
            descriptor = self._payload.open()
        finally:
            self._payload.discard()  # the open descriptor keeps the bytes
        try:
            _write(request, self._head(request, self._payload.size))
            await self._send(request, descriptor)
        finally:
            os.close(descriptor)
        return None

    async def _send(self, request: web.BaseRequest, descriptor: int) -> None:
        left = self._payload.size
        while left:
            piece = os.read(descriptor, min(PIECE_BYTES, left))
            if not piece:
                raise ConnectionResetError("the result ended before its size")
            left -= len(piece)
            _write(request, piece)
            await request.writer.drain()


def _write(request: web.BaseRequest, data: bytes) -> None:
    transport = request.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError("the client has gone")
    transport.write(data)


def json_reply(value: object, status: int = 200, extra: bytes = b"") -> Reply:
    return Reply(status, JSON, _ENCODER.encode(value), extra)


def text_reply(text: str, content_type: bytes = b"text/plain; charset=utf-8", status: int = 200) -> Reply:
    return Reply(status, content_type, text.encode())


def empty_reply() -> Reply:
    return Reply(204, b"", b"")
