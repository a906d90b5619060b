"""The executor's end of a session: answers on their way to the guest, its clock, and its state when it moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dgsf.clock import Clock
from dgsf.errors import DgsfError, ProtocolError
from dgsf.wire.frames import Kind
from dgsf.wire.session import USAGE_BYTES, Usage, decode_usage
from proxy.echo import Echo
from proxy.post import Post
from proxy.sessions.cutter import Cut
from proxy.sessions.relay import RelayLink


class DeviceOwner(Protocol):
    """Who is told; a session."""

    def device_answered(self, link: DeviceLink, cut: Cut) -> None: ...

    def device_used(self, link: DeviceLink, usage: Usage, last_command: int) -> None: ...

    def device_state(self, link: DeviceLink, cut: Cut) -> None: ...

    def device_lost(self, link: DeviceLink, error: DgsfError) -> None: ...

    def device_full(self, link: DeviceLink, full: bool) -> None: ...


class DeviceLink(RelayLink):
    """One executor."""

    def __init__(self, post: Post, owner: DeviceOwner) -> None:
        super().__init__()
        self.post = post
        self.ended = False  # its process is known to be gone
        self._owner = owner
        self._echo: Echo | None = None

    @property
    def may_echo(self) -> bool:
        return not self.lost and (self._echo is None or self._echo.over)

    def measure(self, clock: Clock, done: Callable[[int], None]) -> None:
        """Measure the way to the executor; `done` hears the least round trip in µs, unless the link is lost before."""
        self._echo = Echo(clock, lambda: self.send(Kind.PING, 0), done)
        self._echo.start()

    def stop_echo(self) -> None:
        """Nothing is to come behind what is sent next."""
        if self._echo is not None:
            self._echo.stop()

    # --- RelayLink
    def cut_received(self, cut: Cut) -> None:
        if cut.kind == Kind.ANSWER:
            self._owner.device_answered(self, cut)
        elif cut.kind == Kind.USAGE:
            self._owner.device_used(self, _usage(cut.body()), cut.stream)
        elif cut.kind == Kind.STATE:
            self._owner.device_state(self, cut)
        elif cut.kind != Kind.PONG or self._echo is None or not self._echo.pong():
            raise ProtocolError(f"an executor does not send frames of kind {cut.kind}")

    def link_lost(self, error: DgsfError) -> None:
        self._owner.device_lost(self, error)

    def fullness_changed(self) -> None:
        self._owner.device_full(self, self.full)


def _usage(body: bytes) -> Usage:
    if len(body) != USAGE_BYTES:
        raise ProtocolError(f"a usage of {len(body)} bytes")
    return decode_usage(body)
