"""Tensors that are cut out of one memory: where they lie in it, and how they are made of a copy of it.

A memory is bytes: tensors of several types may share it, and it need not be whole elements of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dgsf.remoting.guest.layout import reach_bytes


def cut(whole: Any, dtype: torch.dtype, size: Sequence[int], stride: Sequence[int], offset: int) -> Any:
    """A tensor of this place in a memory, of which `whole` is the beginning; not a view, to autograd."""
    with torch.no_grad():
        if not offset and whole.dtype is dtype and whole.shape == tuple(size) and whole.stride() == tuple(stride):
            return whole.detach()
        return start(whole, dtype).as_strided(size, stride, offset).detach()


def start(tensor: Any, dtype: torch.dtype) -> Any:
    """A tensor of this type at the beginning of the same memory; an empty one has no elements to be torn."""
    return tensor if tensor.dtype is dtype else tensor.as_strided((0,), (1,), 0).view(dtype)


def end(tensor: Any) -> int:
    """Where a tensor ends, in bytes from the beginning of its memory."""
    reach = reach_bytes(tensor.dtype, tensor.shape, tensor.stride())
    return int(tensor.storage_offset()) * int(tensor.element_size()) + reach


def dense_order(tensor: torch.Tensor) -> list[int] | None:
    """The dimensions from the widest stride to the narrowest, if the tensor is dense in that order."""
    if tensor.is_contiguous():
        return list(range(tensor.dim()))
    sizes, strides = tensor.shape, tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda dim: -strides[dim])
    expected = 1
    for dim in reversed(order):
        if strides[dim] != expected:
            return None
        expected *= sizes[dim]
    return order


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements lie side by side in some order of its dimensions."""
    return dense_order(tensor) is not None
