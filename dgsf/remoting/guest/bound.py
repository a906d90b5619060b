"""The session that this process's remote device belongs to, or none.

One module holds it, so that the hot path reads a few plain globals.  It opens and closes nothing.
"""

from __future__ import annotations

from typing import Any, NoReturn

from dgsf.errors import UsageError
from dgsf.remoting.guest.kinds import Stream
from dgsf.remoting.guest.layout import Table

NOT_ATTACHED = "no remote device is attached; use the device inside 'with dgsf.attach():' or a fabric function"
OTHER_SESSION = "this tensor lived on a remote device whose session has ended; only copies on the CPU outlive it"


class Bound:
    """What the hot path needs of the present session."""

    __slots__ = ("call", "layouts", "remembers", "standing", "stream")

    def __init__(self) -> None:
        self.stream: Stream | None = None
        self.layouts = Table()
        self.call: Any = refuse
        self.remembers = True  # whether shapes are cached; off only to measure what the cache is worth
        self.standing = False  # a function's own device, there as long as the process

    def to(self, stream: Stream | None) -> None:
        self.stream = stream
        self.layouts = Table()
        self.call = refuse if stream is None else stream.call
        self.remembers = bool(getattr(getattr(stream, "modes", None), "shapes", True))

    def need(self) -> Stream:
        if self.stream is None:
            refuse()
        return self.stream


def refuse(*_: Any) -> NoReturn:
    raise UsageError(NOT_ATTACHED)


bound = Bound()
