"""Importing this makes the device known to torch, which takes a while: done once, before workers are forked.

It attaches to nothing and starts no thread.
"""

from __future__ import annotations

from dgsf.remoting.guest import attach, backend, lazy, session_stream  # noqa: F401 - loaded ahead

DEVICE = backend.register()
