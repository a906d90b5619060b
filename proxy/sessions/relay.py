"""One side of a session's relay: an asyncio connection that takes frames whole and passes them on as they came.

It never closes a connection for being busy: when more waits for the other side than it should, reading here is
paused until that has gone.  There may be several reasons to pause at once.  What is kept in memory is bounded by
the write buffer's limit, one read and one unfinished frame.
"""

from __future__ import annotations

import asyncio
import fcntl
import select
import termios
from array import array
from typing import cast

from dgsf.errors import ConnectionLost, DgsfError, ProtocolError
from dgsf.wire.frames import encode_frame
from proxy.sessions.cutter import Cut, Cutter, Piece

HIGH_BYTES = 4 * 1024 * 1024  # so much may wait for a side before reading from the other one pauses
LOW_BYTES = 1024 * 1024
_GONE = select.POLLHUP | select.POLLRDHUP | select.POLLERR


class RelayLink(asyncio.Protocol):
    """Subclasses handle what is cut, the loss of the connection, and fullness."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._cutter = Cutter()
        self._lost = False
        self._pauses: set[str] = set()
        self.gone = asyncio.Event()  # the connection is closed on both sides
        self.received = 0  # bytes
        self.sent = 0  # bytes given to the transport
        self.full = False  # more waits for this side than it should

    # --- for subclasses
    def cut_received(self, cut: Cut) -> None:
        raise NotImplementedError

    def link_lost(self, error: DgsfError) -> None:
        raise NotImplementedError

    def fullness_changed(self) -> None:
        """More waits for this side than it should, or no longer."""
        raise NotImplementedError

    # --- for users
    @property
    def lost(self) -> bool:
        return self._lost

    @property
    def waiting(self) -> int:
        """Bytes that the other side has not taken yet."""
        return 0 if self._transport is None or self._lost else self._transport.get_write_buffer_size()

    @property
    def progress(self) -> tuple[int, int]:
        """Changes whenever the other side takes bytes: what has left here, and what the kernel still has of it."""
        return self.sent - self.waiting, self._in_kernel() if self.waiting else 0

    def pass_on(self, pieces: list[Piece], size: int) -> None:
        """Send frames as they came from elsewhere."""
        if self._lost or self._transport is None:
            return
        self.sent += size
        if len(pieces) == 1:
            self._transport.write(pieces[0])
        else:
            self._transport.writelines(pieces)

    def send(self, kind: int, stream: int, body: bytes = b"", flags: int = 0) -> None:
        """Send a frame of our own."""
        frame = encode_frame(kind, stream, body, flags)
        self.pass_on([frame], len(frame))

    def pause(self, reason: str) -> None:
        if not self._pauses and self._transport is not None and not self._lost:
            self._transport.pause_reading()
        self._pauses.add(reason)

    def resume(self, reason: str) -> None:
        if reason in self._pauses:
            self._pauses.discard(reason)
            if not self._pauses and self._transport is not None and not self._lost:
                self._transport.resume_reading()

    def end(self) -> None:
        """The last word is said. What still comes is dropped: closing on it could cut off what was said."""
        if self._transport is None or self._lost:
            self.close()
            return
        self._lost = True
        if self._pauses:
            self._transport.resume_reading()
        try:
            self._transport.write_eof()
        except OSError:  # it is gone already, we just have not heard so
            self._transport.abort()

    def close(self, *, at_once: bool = False) -> None:
        """Close; what waits is still sent unless it is to go at once. `link_lost` is not called."""
        self._lost = True
        if self._transport is not None:
            self._transport.abort() if at_once else self._transport.close()
        else:
            self.gone.set()

    def look(self) -> None:
        """A paused connection does not hear that the other side is gone: look."""
        if self._pauses and not self._lost and self._transport is not None and self._other_side_is_gone():
            self.connection_lost(None)
            self._transport.abort()

    def _in_kernel(self) -> int:
        """Sent, but not confirmed by the other host, or not read by the other process on this one."""
        assert self._transport is not None
        count = array("i", [0])
        try:
            fcntl.ioctl(self._transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, count)
        except OSError:  # it is being closed
            return 0
        return count[0]

    def _other_side_is_gone(self) -> bool:
        assert self._transport is not None
        sock = self._transport.get_extra_info("socket")
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLRDHUP)
        return any(found & _GONE for _, found in poll.poll(0))

    # --- asyncio.Protocol
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own does not inherit from it
        self._transport.set_write_buffer_limits(high=HIGH_BYTES, low=LOW_BYTES)
        if self._pauses:
            self._transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        if self.lost:
            return
        self.received += len(data)
        try:
            for cut in self._cutter.feed(data):
                self.cut_received(cut)
                if self._lost:
                    return
        except ProtocolError as error:
            self._tell_lost(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        cut = " in the middle of a frame" if self._cutter.unfinished else ""
        self._tell_lost(ConnectionLost(f"connection lost{cut}{f': {exc}' if exc else ''}"))

    def pause_writing(self) -> None:
        self.full = True
        self.fullness_changed()

    def resume_writing(self) -> None:
        self.full = False
        self.fullness_changed()

    def _tell_lost(self, error: DgsfError) -> None:
        if not self._lost:
            self._lost = not isinstance(error, ProtocolError)  # who broke the rules can still be told so
            self.link_lost(error)
