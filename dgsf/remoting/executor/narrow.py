"""Operators whose CPU kernels take less than CUDA's: called with what the CPU has, answered as CUDA would.

Libraries that see a device other than "cpu" rely on what CUDA supports.  The list is of kernels that torch's CPU
lacks for types that its CUDA has; all other operators are called as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Kernel = Callable[..., Any]
_HALVES = (torch.float16, torch.bfloat16)


def _integers_as_float64(kernel: Kernel) -> Kernel:
    """Integer input is computed in float64 and given back in its own type."""

    def wide(first: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if first.is_floating_point():
            return kernel(first, *args, **kwargs)
        return kernel(first.to(torch.float64), *args, **kwargs).to(first.dtype)

    return wide


def _halves_as_float32(kernel: Kernel) -> Kernel:
    """Half precision is computed in float32 and given back in its own type."""

    def wide(*args: Any, **kwargs: Any) -> Any:
        half = next((each.dtype for each in args if _is_half(each)), None)
        if half is None:
            return kernel(*args, **kwargs)
        return _back(kernel(*(each.float() if _is_half(each) else each for each in args), **kwargs), half)

    return wide


def _is_half(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in _HALVES


def _back(result: Any, dtype: torch.dtype) -> Any:
    if isinstance(result, torch.Tensor):
        return result.to(dtype) if result.dtype is torch.float32 else result
    return type(result)(_back(each, dtype) for each in result) if isinstance(result, list | tuple) else result


_WIDER: dict[str, Callable[[Kernel], Kernel]] = {
    "aten::histc": _integers_as_float64,
    "aten::_standard_gamma": _halves_as_float32,
    "aten::_cdist_forward": _halves_as_float32,
    "aten::_cdist_backward": _halves_as_float32,
    "aten::multi_margin_loss": _halves_as_float32,
    "aten::multi_margin_loss_backward": _halves_as_float32,
}


def widen(name: str, kernel: Kernel) -> Kernel:
    """The kernel, or one around it that takes more."""
    wider = _WIDER.get(name.removesuffix(".default"))
    return kernel if wider is None else wider(kernel)
