"""`copy.copy` and `copy.deepcopy` of remote tensors, as torch does them of its own.

What shared memory shares it in the deep copy, too; a shallow copy shares it with the original.

torch copies a tensor's whole storage, once per deepcopy, and cuts the tensor out of that copy.  A remote tensor has no
storage here, but its handle knows the tensor that its memory was made for.  Parameters are copied alone, without
gradients, as torch's are.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from dgsf.remoting.guest.cutting import cut, end, start
from dgsf.remoting.guest.layout import Layout, reach_bytes

_OWN = ("_h", "_m")


def shallow_copy(tensor: Any) -> Any:
    """Another tensor of the same memory, with a graph of its own and the same attributes."""
    with torch.no_grad():
        new = tensor.detach().requires_grad_(tensor.requires_grad)
    new.__dict__.update({name: value for name, value in tensor.__dict__.items() if name not in _OWN})
    if getattr(tensor, "_is_param", False):
        new._is_param = True
    return new


def deep_copy(tensor: Any, memo: dict[Any, Any]) -> Any:
    """The copy of a remote tensor within one deepcopy, whose memo this is."""
    if not tensor.is_leaf:
        raise RuntimeError("Only Tensors created explicitly by the user support the deepcopy protocol at the moment")
    if id(tensor) in memo:
        return memo[id(tensor)]
    is_parameter = getattr(tensor, "_is_param", False)
    with torch.no_grad():
        plain = tensor.detach()
        alone = is_parameter or plain._m.bits  # of a conjugated view torch copies the values, too
        new = plain.clone() if alone else _joined(plain, memo.setdefault("dgsf", {}))
        memo[id(tensor)] = new.requires_grad_(tensor.requires_grad)
    if is_parameter:
        new._is_param = True
        return new
    if tensor.grad is not None:
        new.grad = deep_copy(tensor.grad, memo)
    new.__dict__.update({name: copy.deepcopy(v, memo) for name, v in tensor.__dict__.items() if name not in _OWN})
    return new


def _joined(tensor: Any, copies: dict[int, Any]) -> Any:
    """A tensor cut out of the copy of its whole memory, which is made by whoever comes first."""
    number, made_for = tensor._h.origin(tensor._m)
    if number not in copies:
        copies[number] = _whole(tensor, made_for)
    whole = copies[number]
    if end(whole) < end(tensor):
        raise RuntimeError(
            "deepcopy: a remote tensor was resized after a view of it was made; clone one of the two first"
        )
    return cut(whole, tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset())


def _whole(tensor: Any, made_for: Layout) -> Any:
    """A copy of all memory behind a tensor, which may be a small view of it."""
    if tensor._m is made_for and not tensor.storage_offset():
        new = tensor.clone()
        if new.stride() == tensor.stride():
            return new
    size = max(reach_bytes(made_for.dtype, made_for.size, made_for.stride), end(tensor))
    return start(tensor, torch.uint8).as_strided((size,), (1,), 0).clone()
