"""The default dtype of the guest, under which a call is done; this process keeps its own, float32.

It decides what factories make, what integers become in a division, and in which type a kernel computes on the way.
So it is part of what a call is: no record changes it, and replays and moves need not know of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dgsf.errors import ProtocolError
from dgsf.remoting.executor.codes import dtype_of
from dgsf.remoting.protocol import FLOAT32


def under(code: Any, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel as it is under the default dtype of this code."""
    default = dtype_of(code)
    if code == FLOAT32:
        return kernel
    if not default.is_floating_point:
        raise ProtocolError(f"{default} cannot be a default dtype")
    change, present = torch._C._set_default_dtype, torch.get_default_dtype

    def call(*args: Any, **kwargs: Any) -> Any:
        before = present()
        change(default)
        try:
            return kernel(*args, **kwargs)
        finally:
            change(before)

    return call
