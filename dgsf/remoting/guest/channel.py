"""Frames between the guest and its proxy over one socket.

Frames are queued and sent as the other side takes them; `settle` waits until all are out.  Meanwhile arriving bytes
are read, so two full pipes cannot wait for each other.  Whoever interrupts a wait leaves nothing half done: what is
queued goes out with the next frame.  The channel knows nothing of records; what arrives is handed to `deliver` one
frame at a time.  An end of the connection is a ConnectionLost, always.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable

import msgspec

from dgsf.errors import ConnectionLost
from dgsf.remoting.guest.intake import Intake
from dgsf.remoting.protocol import BULK_BYTES, BULK_HEADER
from dgsf.wire.frames import FLAG_BULK, FLAG_MORE, HEADER, MAX_BODY_BYTES, Frame, Kind, encode_frame
from dgsf.wire.messages import encode

Buffer = bytes | memoryview
_GATHER = 64  # buffers per system call
_SLICE_MS = 20  # one that may not read looks again after this
_TURN_SECONDS = 0.001


class Channel:
    """One connection; `sent` counts the COMMAND frames of this generation."""

    def __init__(self, sock: socket.socket, deliver: Callable[[Frame], None]) -> None:
        sock.setblocking(False)
        self.intake = Intake(deliver)
        self.sent = 0
        self.bytes_out = 0
        self.bytes_in = 0
        self._waiting = 0  # threads that wait for an answer, not only drain
        self._sock = sock
        self._queue: list[Buffer] = []  # to be sent, the first perhaps in part
        self._reading = threading.Lock()
        self._broken = ""  # why; not the error, whose frames would keep the tensors of the call that met it
        self.interrupted = False  # we left half a frame behind ourselves: what was sent is not known any more
        self._incoming = select.poll()
        self._incoming.register(sock, select.POLLIN)
        self._both = select.poll()
        self._both.register(sock, select.POLLIN | select.POLLOUT)
        self._outgoing = select.poll()
        self._outgoing.register(sock, select.POLLOUT)

    # --- out ----------------------------------------------------------------------------------
    def command(self, body: bytes) -> int:
        """Queues records, in several frames if they are too long for one; returns the number of the last."""
        for start in range(0, len(body), MAX_BODY_BYTES):
            piece = body[start : start + MAX_BODY_BYTES]
            more = FLAG_MORE if start + len(piece) < len(body) else 0
            self.sent = (self.sent + 1) & 0xFFFFFFFF
            self._send([HEADER.pack(len(piece), Kind.COMMAND, more, 0, self.sent) + piece])
        return self.sent

    def bulk(self, transfer: int, pieces: Iterable[Buffer]) -> None:
        """Queues bytes in bulk frames of this transfer, without joining them."""
        for buffers, size in _frames_of(pieces):
            self.sent = (self.sent + 1) & 0xFFFFFFFF
            head = HEADER.pack(size + BULK_HEADER.size, Kind.COMMAND, FLAG_BULK, 0, self.sent)
            self._send([head + BULK_HEADER.pack(transfer), *buffers])

    def say(self, message: msgspec.Struct) -> None:
        """A word of the session, to the proxy."""
        self._send([encode_frame(Kind.SESSION, 0, encode(message))])

    def settle(self) -> None:
        """Returns when all is sent."""
        while not self._send_some():
            self._wait_for_room()

    def _send(self, buffers: list[Buffer]) -> None:
        self._queue += buffers
        self._send_some()

    def _send_some(self) -> bool:
        """What the other side takes now; whether that was all."""
        if self._broken:
            raise ConnectionLost(self._broken)
        try:
            while self._queue:
                count = self._sock.sendmsg(self._queue[:_GATHER])
                self.bytes_out += count
                self._queue = _without(self._queue, count)
        except BlockingIOError:
            return False
        except OSError as error:
            self._broken = f"connection to the proxy lost: {error}"
            raise ConnectionLost(self._broken) from error
        except BaseException:  # how much is out is not known: there is no way back into step
            self.interrupted = True
            self._broken = "interrupted while sending"
            raise
        return True

    def _wait_for_room(self) -> None:
        if not self._reading.acquire(blocking=False):  # another thread reads
            rest(self._outgoing, _SLICE_MS)
            return
        try:
            for _, events in rest(self._both):
                if events & ~select.POLLOUT:
                    self._receive()
        finally:
            self._reading.release()

    # --- in -----------------------------------------------------------------------------------
    def receive(self, wait: bool, until: Callable[[], bool] | None = None) -> bool:
        """Takes what has arrived and delivers its frames; with `wait`, at least something.

        Only one thread reads.  If another one does, this one does not, but sees by `until` what it waits for.
        """
        if not wait:
            return self._receive_now()
        self._waiting += 1
        try:
            while not self._reading.acquire(timeout=_TURN_SECONDS):
                if until is not None and until():
                    return False
            try:
                return self._receive_something(until)
            finally:
                self._reading.release()
        finally:
            self._waiting -= 1

    def drain(self, until: Callable[[], bool]) -> None:
        """Reads in a thread of its own while the program is busy elsewhere, and only then."""
        while not until():
            if self._waiting or not self._reading.acquire(timeout=_TURN_SECONDS):
                time.sleep(_TURN_SECONDS)
                continue
            try:
                if not until() and self._incoming.poll(_SLICE_MS):
                    self._receive()
            finally:
                self._reading.release()

    def _receive_now(self) -> bool:
        if not self._reading.acquire(blocking=False):
            return False
        try:
            return self._receive()
        finally:
            self._reading.release()

    def _receive_something(self, until: Callable[[], bool] | None) -> bool:
        if until is not None and until():
            return False
        if self._receive():
            return True
        rest(self._incoming)
        return self._receive()

    def _receive(self) -> bool:
        if self._broken:
            raise ConnectionLost(self._broken)
        try:
            count = self._sock.recv_into(self.intake.space())
        except BlockingIOError:
            return False
        except OSError as error:
            self._broken = f"connection to the proxy lost: {error}"
            raise ConnectionLost(self._broken) from error
        except BaseException:  # somebody insisted: what was read is not known
            self.interrupted = True
            self._broken = "interrupted while reading"
            raise
        if not count:
            self._broken = "the proxy closed the connection"
            raise ConnectionLost(self._broken)
        self.bytes_in += count
        try:
            self.intake.filled(count)
        except BaseException as error:  # half a frame may be lost: whoever reads next must not wait for the rest
            self.interrupted = self.interrupted or not isinstance(error, Exception)
            self._broken = self._broken or f"what came cannot be read: {error!r}"
            raise
        return True

    def last_words(self) -> None:
        """What had arrived before the connection broke: it may tell why."""
        with self._reading, contextlib.suppress(OSError):
            while count := self._sock.recv_into(self.intake.space()):
                self.bytes_in += count
                self.intake.filled(count)

    def close(self) -> None:
        self._broken = self._broken or "the session is closed"
        self._sock.close()


def rest(poll: select.poll, milliseconds: float | None = None) -> list[tuple[int, int]]:
    """Until something can be sent or received; where a program is interrupted best."""
    return poll.poll(milliseconds)


def _without(buffers: list[Buffer], count: int) -> list[Buffer]:
    """What is left after so many bytes."""
    for index, buffer in enumerate(buffers):
        if count < len(buffer):
            return [memoryview(buffer)[count:], *buffers[index + 1 :]]
        count -= len(buffer)
    return []


def _frames_of(pieces: Iterable[Buffer]) -> Iterable[tuple[list[Buffer], int]]:
    """The pieces grouped and cut to bulk frames."""
    group: list[Buffer] = []
    size = 0
    for piece in pieces:
        view = memoryview(piece)
        while len(view):
            part = view[: BULK_BYTES - size]
            view = view[len(part) :]
            group.append(part)
            size += len(part)
            if size == BULK_BYTES:
                yield group, size
                group, size = [], 0
    if group:
        yield group, size
