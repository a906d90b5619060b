"""torch's fake tensors under the alias: those of the remote device say its own name.

Tracers (`torch.export`, `make_fx`, `aot_function`) make them of real tensors, which say cuda here.  A fake tensor on
cuda would not meet those that are made on the remote device, and torch's engine, which finds no CUDA in this process,
ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from typing import Any

from dgsf.remoting.guest.replacing import replace

_PLACE = "_normalize_fake_device"  # asked by every way to a fake tensor


def install(stack: ExitStack, translate: Callable[[Any], Any]) -> None:
    kind = import_module("torch._subclasses.fake_tensor").FakeTensor
    original = getattr(kind, _PLACE)
    replace(stack, kind, _PLACE, staticmethod(lambda device: original(translate(device))))
