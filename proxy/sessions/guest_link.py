"""The guest's end of a session: its words, its commands on their way, and whether it still reads."""

from __future__ import annotations

from typing import Protocol

from dgsf.errors import DgsfError, ProtocolError
from dgsf.wire.frames import Kind
from dgsf.wire.messages import encode
from dgsf.wire.session import GuestMessage, ProxyMessage, read_from_guest
from proxy.sessions.cutter import Cut
from proxy.sessions.relay import RelayLink

# A guest that takes nothing of what waits for it, for so long, has stopped reading and loses its device.  With a look
# before and after, and the executor's end, its memory is free within a second.  What waits for a guest is what it asked
# for: a program that is long in its own code has nothing waiting, and a checkpoint is taken in by a thread.  One whose
# thread could not run (the interpreter was held all the time) finds out later and begins again.
STALL_US = 700_000
GIVE_UP_US = 60_000_000


class GuestOwner(Protocol):
    """Who is told; a session."""

    def guest_said(self, message: GuestMessage) -> None: ...

    def guest_commands(self, cut: Cut) -> None: ...

    def guest_lost(self, error: DgsfError) -> None: ...

    def guest_full(self, full: bool) -> None: ...


class GuestLink(RelayLink):
    """One guest."""

    def __init__(self, owner: GuestOwner) -> None:
        super().__init__()
        self._owner = owner
        self._progress_seen = (-1, 0)
        self._stuck_since_us = 0

    def tell(self, message: ProxyMessage) -> None:
        self.send(Kind.SESSION, 0, encode(message))

    def stuck_us(self, now_us: int) -> int:
        """For how long bytes have waited for it and it took none; to be asked now and then."""
        progress = self.progress
        if not self.waiting or progress != self._progress_seen:
            self._progress_seen, self._stuck_since_us = progress, now_us
        return now_us - self._stuck_since_us

    # --- RelayLink
    def cut_received(self, cut: Cut) -> None:
        if cut.kind == Kind.COMMAND:
            self._owner.guest_commands(cut)
        elif cut.kind == Kind.SESSION:
            self._owner.guest_said(read_from_guest(cut.body()))
        elif cut.kind == Kind.PING:
            self.send(Kind.PONG, 0)
        else:
            raise ProtocolError(f"a guest does not send frames of kind {cut.kind}")

    def link_lost(self, error: DgsfError) -> None:
        self._owner.guest_lost(error)

    def fullness_changed(self) -> None:
        self._owner.guest_full(self.full)
