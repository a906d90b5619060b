"""New memory without values is zero, so that nobody reads what was there before.

That is what an earlier process left on a device with memory of its own, and on the CPU the heap of the process that
executors are forked from: what is freed is used again without being cleared.  Operators that write all of their
results are left alone; those that give memory as it is, or more of it, are wrapped when a kind is prepared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dgsf.remoting.executor.growing import GROWING, zero_from

# Those with out= but for the first write what they themselves were given there.
_EMPTY = frozenset((
    "empty.memory_format", "empty_like", "empty_permuted", "new_empty",
    "empty_like.out", "empty_permuted.out", "empty_strided.out", "new_empty.out", "new_empty_strided.out",
))  # fmt: skip
_STRIDED = frozenset(("empty_strided", "new_empty_strided"))


def _zeroed(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def empty(*args: Any, **kwargs: Any) -> Any:
        return kernel(*args, **kwargs).zero_()

    return empty


def _zeroed_with_gaps(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Strides may leave gaps, which another view shows."""

    def empty(*args: Any, **kwargs: Any) -> Any:
        made = kernel(*args, **kwargs)
        zero_from(made, 0)
        return made

    return empty


def _grown(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def resize(*args: Any, **kwargs: Any) -> Any:
        target: torch.Tensor = kwargs["out"] if "out" in kwargs else args[0]
        before = target.untyped_storage().nbytes()
        result = kernel(*args, **kwargs)
        zero_from(target, before)
        return result

    return resize


def zeroing(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel, or one that leaves no memory unwritten."""
    name = name.removesuffix(".default")
    bare = name.removeprefix("aten::")
    if bare in _EMPTY:
        return _zeroed(kernel)
    if bare in _STRIDED:
        return _zeroed_with_gaps(kernel)
    return _grown(kernel) if name in GROWING or bare == "empty.out" else kernel
