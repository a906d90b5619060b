"""Another default dtype: the same call makes other tensors, so from then on other caches are looked into.

Every kind of call carries the one that it was learnt under to the device.  To see it change costs a call nothing:
torch's Python code has two doors to it, through which also `from torch import set_default_dtype` goes.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch

from dgsf.remoting.guest.plans import follow_default
from dgsf.remoting.guest.replacing import replace, standing_for

_DOORS = ("_set_default_dtype", "_set_default_tensor_type")


def install(stack: ExitStack) -> None:
    for name in _DOORS:
        replace(stack, torch._C, name, _followed(getattr(torch._C, name)))


def _followed(original: Any) -> Any:
    def change(default: Any) -> None:
        original(default)
        follow_default()

    return standing_for(change, original)
