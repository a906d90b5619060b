"""torch's fake tensors under the alias: those of the remote device are its own, and say cuda as real ones do.

Tracers (`torch.export`, `make_fx`, `aot_function`) make them of real tensors, which say cuda here.  A fake tensor on
cuda would not meet those that are made on the remote device, and torch's engine, which finds no CUDA in this process,
ends it.  But the program that is traced asks where its tensors are, and has to hear what it hears of real ones.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from typing import Any

import torch

from dgsf.remoting.guest.replacing import replace
from dgsf.remoting.guest.tensor import DEVICE_NAME

_PLACE = "_normalize_fake_device"  # asked by every way to a fake tensor


def install(stack: ExitStack, translate: Callable[[Any], Any], said: torch.device) -> None:
    kind = import_module("torch._subclasses.fake_tensor").FakeTensor
    original, device, is_cuda = getattr(kind, _PLACE), kind.device, kind.is_cuda

    def told(self: Any) -> torch.device:
        found: torch.device = device.__get__(self)
        return said if found.type == DEVICE_NAME else found

    replace(stack, kind, _PLACE, staticmethod(lambda device: original(translate(device))))
    replace(stack, kind, "device", property(told, device.__set__))
    replace(stack, kind, "is_cuda", property(lambda self: told(self) == said or is_cuda.__get__(self)))
