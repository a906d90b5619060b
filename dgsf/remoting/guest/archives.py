"""Remote tensors that are pickled: as copies on the CPU, and within one `torch.save` each memory only once.

So tied weights stay tied in the file.  A view is cut out of the copy of the whole tensor if that came before it; alone,
it is fetched alone, and a large tensor does not have to come here for a row of it.
"""

from __future__ import annotations

import threading
from typing import Any

import torch

from dgsf.remoting.guest.layout import Layout, reach_bytes

_here = threading.local()  # `copies`: what a save that is under way in this thread has fetched

Copies = dict[tuple[int, int, Layout | None], torch.Tensor]  # by memory, offset and layout; no layout: all of it


def saving(original: Any) -> Any:
    """`torch.save` that fetches what is shared once."""

    def save(*args: Any, **kwargs: Any) -> Any:
        if getattr(_here, "copies", None) is not None:
            return original(*args, **kwargs)
        _here.copies = {}
        try:
            return original(*args, **kwargs)
        finally:
            _here.copies = None

    return save


def local_copy(tensor: Any) -> torch.Tensor:
    """A CPU copy of a remote tensor; its memory is shared with that of others of the same save."""
    plain = tensor.detach()
    copies: Copies | None = getattr(_here, "copies", None)
    return plain.cpu() if copies is None else _shared(plain, copies).detach()


def _shared(tensor: Any, copies: Copies) -> torch.Tensor:
    if tensor.is_conj():
        return torch._conj(_shared(torch._conj(tensor), copies))
    if tensor.is_neg():
        return torch._neg_view(_shared(torch._neg_view(tensor), copies))
    memory, made_for = tensor._h.origin(tensor._m)
    layout, offset = tensor._m, tensor.storage_offset()
    whole = copies.get((memory, 0, None))
    if whole is not None and _holds(whole, tensor):
        return whole.as_strided(tensor.shape, tensor.stride(), offset)
    found = copies.get((memory, offset, layout))
    if found is None:
        found = copies[memory, offset, layout] = tensor.cpu()
        size = reach_bytes(made_for.dtype, made_for.size, made_for.stride)
        if not offset and found.stride() == tensor.stride() and found.untyped_storage().nbytes() == size:
            copies[memory, 0, None] = found
    return found


def _holds(whole: torch.Tensor, tensor: Any) -> bool:
    """Whether this part can be cut out; a file has one type for each memory."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    end = tensor.storage_offset() + 1 + sum((size - 1) * stride for size, stride in steps)
    return whole.dtype is tensor.dtype and bool(end * whole.element_size() <= whole.untyped_storage().nbytes())
