"""What a long load test is doing, on stderr: a spinner on a terminal, else a line with the time it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

_console = Console(stderr=True, highlight=False)


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Says what is being done, from now until it is done."""
    if _console.is_terminal:
        with _console.status(what):
            yield
        return
    started = time.monotonic()
    _console.print(f"{what} ...", end=" ", markup=False, soft_wrap=True)
    _console.file.flush()
    yield
    _console.print(f"{time.monotonic() - started:.0f} s", markup=False)


@contextmanager
def telling(what: str) -> Iterator[Callable[[float, str], None]]:
    """The same, for something that can tell which part is done and what it has come to."""
    if not _console.is_terminal:
        with doing(what):
            yield lambda part, found: None
        return
    with _console.status(what) as status:
        yield lambda part, found: status.update(f"{what}: {part:.0%}, {found}")
