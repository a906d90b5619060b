"""New memory without values is zero, so that nobody reads what was there before.

That is what an earlier process left on a device with memory of its own, and on the CPU the heap of the process that
executors are forked from: what is freed is used again without being cleared.  Operators that write all of their
results are left alone; those that give memory as it is, or more of it, are wrapped when a kind is prepared.  Which they
are was found by calling torch's own operator cases with memory filled in two ways.
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
# Results keep more memory than they show: a loss that of its summands, the others room for the most there could be.
_SHRUNK = frozenset((
    "mse_loss", "smooth_l1_loss", "col2im", "_unique", "_unique2", "unique_consecutive", "unique_dim",
    "unique_dim_consecutive",
))  # fmt: skip
_SHRUNK_THERE = frozenset(("mse_loss", "smooth_l1_loss", "col2im"))  # also with out=; those of several results copy
_CTC = "_ctc_loss"


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


def _shrunk(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        made = kernel(*args, **kwargs)
        return tuple([_as_shown(each) for each in made]) if isinstance(made, tuple) else _as_shown(made)

    return call


def _as_shown(made: torch.Tensor) -> torch.Tensor:
    return made.clone() if made.untyped_storage().nbytes() > made.nbytes else made


def _shrunk_there(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """What it writes to has grown to more than it shows; only that was written."""

    def call(*args: Any, out: torch.Tensor, **kwargs: Any) -> Any:
        before = out.untyped_storage().nbytes()
        result = kernel(*args, out=out, **kwargs)
        zero_from(out, max(before, out.storage_offset() * out.itemsize + out.nbytes))
        return result

    return call


def _ctc_loss(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """What it keeps for the way back is written as far as sequences and labels go."""

    def loss(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *args: Any, **kwargs: Any) -> Any:
        result = kernel(log_probs, targets, input_lengths, target_lengths, *args, **kwargs)
        alpha = result[1]
        steps, labels = (torch.as_tensor(each).to(alpha.device) for each in (input_lengths, target_lengths))
        beyond = torch.arange(alpha.shape[1], device=alpha.device)[:, None] >= steps.view(-1, 1, 1)
        beyond = beyond | (torch.arange(alpha.shape[2], device=alpha.device) > 2 * labels.view(-1, 1, 1))
        alpha.masked_fill_(beyond, 0.0)
        return result

    return loss


def zeroing(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel, or one that leaves no memory unwritten."""
    name = name.removesuffix(".default")
    bare = name.removeprefix("aten::")
    if bare in _EMPTY:
        return _zeroed(kernel)
    if bare in _STRIDED:
        return _zeroed_with_gaps(kernel)
    base, _, overload = bare.partition(".")
    if base in _SHRUNK and not overload:
        return _shrunk(kernel)
    if base in _SHRUNK_THERE:
        return _shrunk_there(kernel)
    if base == _CTC:
        return _ctc_loss(kernel)
    return _grown(kernel) if name in GROWING or bare == "empty.out" else kernel
