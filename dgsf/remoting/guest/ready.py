"""Importing this makes a process ready for remote devices, which takes seconds: done once, before workers are forked.

It registers the device with torch and has torch load what it infers shapes with.  It attaches to nothing,
computes nothing and starts no thread.
"""

from __future__ import annotations

import torch

from dgsf.remoting.guest import attach, backend, lazy, session_stream  # noqa: F401 - loaded ahead

DEVICE = backend.register()
torch.empty(2, device="meta") * 2.0  # the first inference of a shape imports hundreds of modules
