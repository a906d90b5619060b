"""The session that this process's remote device belongs to, or none.

One module holds it, so that the hot path reads a few plain globals.  It opens and closes nothing.
"""

from __future__ import annotations

import os
from typing import Any, NoReturn

from dgsf.errors import NotAttached
from dgsf.remoting.guest.kinds import Stream
from dgsf.remoting.guest.layout import Table
from dgsf.remoting.guest.modes import FULL

NOT_ATTACHED = "no remote device is attached; use the device inside 'with dgsf.attach():' or a fabric function"
FORKED = (
    "a forked process (a DataLoader's worker) cannot use its parent's remote device; "
    "use spawn, or keep device work in the parent"
)
OTHER_SESSION = "this tensor lived on a remote device whose session has ended; only copies on the CPU outlive it"


REMOTE = "dgsf:0"


class Bound:
    """What the hot path needs of the present session."""

    __slots__ = ("call", "elements", "layouts", "name", "remembers", "standing", "stream", "why")

    def __init__(self) -> None:
        self.stream: Stream | None = None
        self.layouts = Table()
        self.call: Any = refuse
        self.name = REMOTE  # what the program calls the device
        self.remembers = True  # whether shapes are cached; off only to measure what the cache is worth
        self.elements = True  # whether only what is read of a tensor is downloaded; off only to measure
        self.standing = False  # a function's own device, there as long as the process
        self.why = NOT_ATTACHED  # what to say while there is none

    def to(self, stream: Stream | None, alias: str = "") -> None:
        self.stream = stream
        self.name = f"{alias}:0" if alias else REMOTE
        self.why = NOT_ATTACHED
        self.layouts = Table()
        self.call = refuse if stream is None else stream.call
        modes = getattr(stream, "modes", FULL)
        self.remembers, self.elements = modes.shapes, modes.elements

    def forked(self) -> None:
        """In a child of the process that has the session: its connection must not be spoken on from here."""
        if self.stream is not None:
            self.stream.forked()
            self.to(None)
            self.why = FORKED

    def need(self) -> Stream:
        if self.stream is None:
            refuse()
        return self.stream


def refuse(*_: Any) -> NoReturn:
    raise NotAttached(bound.why)


bound = Bound()
os.register_at_fork(after_in_child=bound.forked)
