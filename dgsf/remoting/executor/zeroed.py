"""New memory without values is zero, so that nobody reads what an earlier process left on the device.

A process's own memory comes zeroed from the operating system, so this is for devices with memory of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dgsf.remoting.executor.growing import GROWING

_EMPTY = frozenset((
    "empty.memory_format", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided",
))  # fmt: skip


def _zeroed(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def empty(*args: Any, **kwargs: Any) -> Any:
        return kernel(*args, **kwargs).zero_()

    return empty


def _grown(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def resize(target: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        before = target.untyped_storage().nbytes()
        result = kernel(target, *args, **kwargs)
        storage = target.untyped_storage()
        if storage.nbytes() > before:
            rest = torch.empty(0, dtype=torch.uint8, device=target.device)
            rest.set_(storage, before, (storage.nbytes() - before,), (1,)).zero_()
        return result

    return resize


def zeroing(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel, or one that leaves no memory unwritten."""
    name = name.removesuffix(".default")
    if name.removeprefix("aten::") in _EMPTY:
        return _zeroed(kernel)
    return _grown(kernel) if name in GROWING else kernel
