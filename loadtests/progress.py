"""What a long load test is doing, on stderr: a spinner on a terminal, else a line with the time it took."""

from __future__ import annotations

import time
from collections.abc import Iterator
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
