"""`pin_memory=True` in functions that make tensors: without a device in this machine there is nothing to pin for.

Torch asks the accelerator for pinned memory, also for tensors of the CPU, and a remote one has none to give.  So while
it is attached the wish is dropped, as `Tensor.pin_memory` drops it.
"""

from __future__ import annotations

from contextlib import ExitStack
from importlib import import_module
from typing import Any

import torch

from dgsf.remoting.guest.replacing import hearing, replace, standing_for

_LIKES = ("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like", "asarray",
          "as_tensor")  # fmt: skip
METHODS = ("new_tensor", "new_zeros", "new_ones", "new_empty", "new_full", "new_empty_strided")


def constructors() -> list[str]:
    """The functions of torch that make tensors where they are told to."""
    known = import_module("torch.utils._device")._device_constructors()
    found = [name for name in dir(torch) if not name.startswith("_") and _in(getattr(torch, name), known)]
    return sorted({*found, *_LIKES} - {"Generator", "from_numpy"})


def _in(value: Any, known: Any) -> bool:
    try:
        return getattr(value, "_dgsf_original", value) in known
    except TypeError:
        return False


def install(stack: ExitStack) -> None:
    replace(stack, torch.Tensor, "pin_memory", lambda self, device=None: self)
    for name in constructors():
        replace(stack, torch, name, _unpinned(getattr(torch, name)))
    for name in METHODS:
        replace(stack, torch.Tensor, name, _unpinned(hearing(getattr(torch.Tensor, name))))


def _unpinned(function: Any) -> Any:
    def made(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("pin_memory", None)
        return function(*args, **kwargs)

    return standing_for(made, function)
