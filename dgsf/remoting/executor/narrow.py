"""Operators whose CPU kernels take less than CUDA's: called with what the CPU has, answered as CUDA would.

Libraries that see a device other than "cpu" rely on what CUDA supports.  Only calls that fail on the CPU pay
for this: the kernel is tried first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Kernel = Callable[..., Any]


def _as_float_and_back(kernel: Kernel) -> Kernel:
    """Integer input is computed in float64 and given back in its own type (histc, ...)."""

    def wide(*args: Any, **kwargs: Any) -> Any:
        first = args[0]
        if not isinstance(first, torch.Tensor) or first.is_floating_point() or first.is_complex():
            return kernel(*args, **kwargs)
        result = kernel(first.to(torch.float64), *args[1:], **kwargs)
        return result.to(first.dtype)

    return wide


_WIDER: dict[str, Callable[[Kernel], Kernel]] = {
    "aten::histc": _as_float_and_back,
}


def widen(name: str, kernel: Kernel) -> Kernel:
    """The kernel, or one around it that takes more."""
    wider = _WIDER.get(name)
    return kernel if wider is None else wider(kernel)
