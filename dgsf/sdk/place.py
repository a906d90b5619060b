"""Where this process stands: in a user's program, or in a worker that runs functions."""

from __future__ import annotations

_in_worker = False


def become_worker() -> None:
    """Tells the SDK that this process runs functions: `.remote` then says that it cannot be used here."""
    global _in_worker
    _in_worker = True


def in_worker() -> bool:
    return _in_worker
