"""Downloads of a few elements: only they cross the wire, not the tensor that they are of.

An index or slice is a view on the device, so what is read is the view alone.  Printing a large tensor shows its edges,
so only these are brought here.  Switched off (`-elements`), both bring the whole tensor, to measure what it is worth.
"""

from __future__ import annotations

import re
from typing import Any

import torch

from dgsf.errors import SessionLost
from dgsf.remoting.guest.bound import FORKED, bound
from dgsf.remoting.guest.kinds import Stream

_SUFFIX = re.compile(r",\s+(?=\w+=)")  # begins what follows the values: device, dtype, gradient


def printed(tensor: Any, indent: int) -> str | None:
    """What torch prints of its values; None if there is no way to them any more."""
    stream = bound.stream
    if stream is None or tensor._h.free != stream.free:
        return None
    try:
        return _printed(tensor, indent)
    except SessionLost:
        return None


def _printed(tensor: torch.Tensor, indent: int) -> str:
    strings = torch._tensor_str
    edge: int = strings.PRINT_OPTS.edgeitems
    if bound.elements and edge and tensor.numel() > strings.PRINT_OPTS.threshold:
        try:
            edges = _edges(tensor, edge).cpu()
        except RuntimeError:  # of a type for which the device cannot do it
            edges = None
        if edges is not None:
            with strings.printoptions(threshold=0):  # it is to look like a part of something larger
                return str(strings._tensor_str(edges, indent))
    return str(strings._tensor_str(tensor.cpu(), indent))


def without_values(tensor: Any) -> str:
    """Printed by what is known here: a traceback or debugger that shows all variables must not fail by this one."""
    why = "its session is the parent process's" if bound.why is FORKED else "its session has ended"
    shown = f"tensor(<{why}>, device='{tensor.device}', size={tuple(tensor.shape)}, dtype={tensor.dtype}"
    if tensor.grad_fn is not None:
        return f"{shown}, grad_fn=<{type(tensor.grad_fn).__name__}>)"
    return f"{shown}, requires_grad=True)" if tensor.requires_grad else f"{shown})"


def named_as_torchs(text: str, contents: str) -> str:
    """What torch prints of a tensor of our class, as it prints one of its own: its lines are as long as the name is."""
    rest = text[text.index("(") + 1 + len(contents) : -1]
    suffixes = [each for each in _SUFFIX.split(rest) if each]
    return str(torch._tensor_str._add_suffixes("tensor(" + contents, suffixes, len("tensor("), False))


def _edges(tensor: torch.Tensor, edge: int) -> torch.Tensor:
    """The first and last few along each dimension, and one between them, for which torch will print dots."""
    for dim, size in enumerate(tensor.shape):
        if size > 2 * edge + 1:
            tensor = torch.cat((tensor.narrow(dim, 0, edge + 1), tensor.narrow(dim, size - edge, edge)), dim)
    return tensor


def cut_from_whole(tensor: Any, stream: Stream) -> torch.Tensor:
    """The values of a view, from the whole tensor that it is a view of."""
    base = tensor._base
    if base is None or type(base) is not type(tensor) or base._h.id < 0 or not _lies_within(tensor, base):
        return stream.fetch(tensor._h.id)
    offset = tensor.storage_offset() - base.storage_offset()
    return stream.fetch(base._h.id).as_strided(tensor.shape, tensor.stride(), offset).clone()


def _lies_within(tensor: Any, base: Any) -> bool:
    if (
        tensor.dtype is not base.dtype
        or tensor._m.bits
        or base._m.bits
        or not base.is_contiguous()
        or not tensor.numel()
    ):
        return False
    first = tensor.storage_offset() - base.storage_offset()
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return first >= 0 and bool(first + reach < base.numel())
