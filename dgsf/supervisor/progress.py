"""What the person who started the platform sees: one step after the other, with times.

On a terminal a live line tells what is being waited for; elsewhere plain lines.  `ready URL` is printed
exactly, on standard output, for people and programs alike; everything else goes to standard error.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rich.console import Console


class _Output(Console):
    """Standard error; when nobody reads it any more, that is told, and the process does not just end."""

    def __init__(self) -> None:
        super().__init__(stderr=True, highlight=False, soft_wrap=True)
        self.on_closed: Callable[[], None] = lambda: None

    def on_broken_pipe(self) -> None:
        self.quiet = True
        self.on_closed()


class Progress:
    """Tells of steps; several may be under way at once."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or _Output()
        self._under_way: list[str] = []
        self._status = self._console.status("starting") if self._console.is_terminal else None

    def __enter__(self) -> Progress:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.settle()

    def when_closed(self, call: Callable[[], None]) -> None:
        """Call this when nobody reads what is said any more, or now if that is so."""
        if self._console.quiet:
            call()
        elif isinstance(self._console, _Output):
            self._console.on_closed = call

    def settle(self) -> None:
        """End the live line."""
        if self._status is not None:
            with suppress(OSError):
                self._status.stop()
            self._status = None

    @contextmanager
    def step(self, name: str, done: str = "ready") -> Iterator[None]:
        """A stretch of work: "postgres ready (0.3 s)" when it is over, nothing if it fails."""
        began = time.monotonic()
        self._under_way.append(name)
        self._show()
        try:
            yield
            self.say(f"{name} {done} ({time.monotonic() - began:.1f} s)")
        finally:
            self._under_way.remove(name)
            self._show()

    def say(self, text: str) -> None:
        with suppress(OSError):  # a terminal that is gone must not keep us from stopping in order
            self._console.print(text, markup=False)

    def ready(self, url: str) -> None:
        self.settle()
        sys.stdout.write(f"ready {url}\n")
        sys.stdout.flush()

    def _show(self) -> None:
        if self._status is not None:
            self._status.update("waiting for " + ", ".join(self._under_way) if self._under_way else "starting")
