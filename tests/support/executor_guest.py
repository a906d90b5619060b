"""A minimal guest for tests of the executor: sends records, reads answers."""

from __future__ import annotations

import socket

import msgspec
import torch

from dgsf.remoting.protocol import BULK_BYTES, BULK_HEADER, DTYPES, Record, Status
from dgsf.wire.frames import FLAG_BULK, HEADER, Kind, encode_frame

CODES = {getattr(torch, name): code for code, name in enumerate(DTYPES)}


class Closed(Exception):
    """The executor ended the connection."""


class Failed(Exception):
    def __init__(self, call: int, code: str, message: str) -> None:
        super().__init__(call, code, message)
        self.call, self.code, self.message = call, code, message


class TestGuest:
    __test__ = False

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(60)
        self.sock = sock
        self.sequence = 0
        self.requests = 0
        self.transfers = 0
        self.unasked: list[list] = []
        self.usages: list[bytes] = []

    # --- out
    def send(self, *records: list) -> int:
        self.sequence += 1
        self.sock.sendall(encode_frame(Kind.COMMAND, self.sequence, msgspec.msgpack.encode(list(records))))
        return self.sequence

    def bulk(self, transfer: int, data: bytes) -> None:
        for start in range(0, len(data), BULK_BYTES):
            self.sequence += 1
            body = BULK_HEADER.pack(transfer) + data[start : start + BULK_BYTES]
            self.sock.sendall(encode_frame(Kind.COMMAND, self.sequence, body, FLAG_BULK))

    def upload(self, handle: int, tensor: torch.Tensor) -> None:
        data = raw(tensor)
        self.send([Record.UPLOAD, handle, CODES[tensor.dtype], list(tensor.shape), data])

    def upload_bulk(self, handle: int, tensor: torch.Tensor) -> None:
        self.transfers += 1
        data = raw(tensor)
        self.send([Record.UPLOAD_BULK, handle, CODES[tensor.dtype], list(tensor.shape), len(data), self.transfers])
        self.bulk(self.transfers, data)

    # --- in
    def frame(self) -> tuple[int, int, int, bytes]:
        while True:
            length, kind, flags, _, stream = HEADER.unpack(self._exactly(HEADER.size))
            body = self._exactly(length)
            if kind != Kind.USAGE:
                return kind, flags, stream, body
            self.usages.append(body)

    def read_to_the_end(self) -> None:
        """Closed comes sooner or later."""
        while True:
            self.frame()

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                piece = self.sock.recv(count - len(data))
            except ConnectionError:
                piece = b""
            if not piece:
                raise Closed
            data += piece
        return data

    def answer(self, request: int) -> object:
        while True:
            kind, _, _, body = self.frame()
            assert kind == Kind.ANSWER
            told, status, content = msgspec.msgpack.decode(body)
            if told == 0:
                self.unasked.append([status, content])
                if status == Status.FAILED:
                    raise Failed(*content)
                return status, content
            assert told == request
            if status == Status.FAILED:
                raise Failed(*content)
            return content

    def ask(self, record: Record, *rest: object) -> object:
        self.requests += 1
        self.send([record, self.requests, *rest])
        return self.answer(self.requests)

    def fetch(self, handle: int) -> torch.Tensor:
        dtype, sizes, size, *data = self.ask(Record.FETCH, handle)
        return tensor_of(dtype, sizes, data[0] if data else self.bulk_answer(self.requests, size))

    def bulk_answer(self, request: int, size: int) -> bytes:
        data = b""
        while len(data) < size:
            kind, flags, _, body = self.frame()
            assert kind == Kind.ANSWER and flags == FLAG_BULK
            assert BULK_HEADER.unpack_from(body)[0] == request
            data += body[BULK_HEADER.size :]
        return data

    def sync(self) -> None:
        self.ask(Record.SYNC)


def raw(tensor: torch.Tensor) -> bytes:
    tensor = tensor.contiguous()
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def tensor_of(dtype: int, sizes: list, data: bytes) -> torch.Tensor:
    kind = getattr(torch, DTYPES[dtype])
    if not data:
        return torch.empty(sizes, dtype=kind)
    return torch.frombuffer(bytearray(data), dtype=kind).reshape(sizes)
