"""Calls that may grow the memory of a tensor, by `resize_` or `out=`.

Memory that came in bulk or with a state, that was fetched or is mapped from a file cannot grow: others may look at
it.  Torch refuses after it has given the tensor its new sizes, which are then larger than the memory.  So the bytes
are copied to memory of torch's own, for all tensors of them, and the call is made again.  What a call that failed
had grown is zeroed: nobody has written there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dgsf.remoting.executor.changes import Changes
from dgsf.remoting.executor.codes import span_bytes

GROWING = frozenset(("aten::resize_", "aten::resize_as_", "aten::_resize_output_"))
_FIXED = "storage that is not resizable"


def may_grow(schema: Any) -> bool:
    if schema.name in GROWING:
        return True
    outs = [argument.alias_info for argument in schema.arguments if argument.kwarg_only]
    return any(info is not None and info.is_write for info in outs)


def reaches_beyond(tensor: Any) -> bool:
    """Whether a call failed after it had given this tensor sizes for which there is no memory."""
    span = span_bytes(tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset())
    return bool(span > tensor.untyped_storage().nbytes())


def zero_from(tensor: torch.Tensor, start: int) -> None:
    """Zero the memory behind this tensor from this byte on."""
    storage = tensor.untyped_storage()
    if storage.nbytes() > start:
        rest = torch.empty(0, dtype=torch.uint8, device=tensor.device)
        rest.set_(storage, start, (storage.nbytes() - start,), (1,)).zero_()


def growing(kernel: Callable[..., Any], tensors: dict[int, Any], changes: Changes) -> Callable[..., Any]:
    """The kernel, made again where memory could not grow; `tensors`: all of the session."""

    def call(*args: Any, **kwargs: Any) -> Any:
        before = [(each, each.untyped_storage().nbytes()) for each in _tensors_in(kwargs.values())]
        try:
            return grow(*args, **kwargs)
        except BaseException:
            for each, size in before:
                zero_from(each, size)
            raise

    def grow(*args: Any, **kwargs: Any) -> Any:
        try:
            return kernel(*args, **kwargs)
        except RuntimeError as error:
            if _FIXED not in str(error):
                raise
            broken = [each for each in _tensors_in((*args, *kwargs.values())) if reaches_beyond(each)]
            if not broken:
                raise
        for tensor in broken:
            _renew(tensor, tensors, changes)
        return grow(*args, **kwargs)  # another one may have to grow, too

    return call


def _tensors_in(values: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found.extend(_tensors_in(value))
    return found


def _renew(broken: torch.Tensor, tensors: dict[int, Any], changes: Changes) -> None:
    """Memory that can grow, for all tensors of this one's; this one is empty until the call is made again."""
    storage = broken.untyped_storage()
    copy = storage.clone()
    broken.set_(copy, broken.storage_offset(), (0,), (1,))
    for tensor in tensors.values():
        if tensor.untyped_storage()._cdata == storage._cdata:
            tensor.set_(copy, tensor.storage_offset(), tensor.shape, tensor.stride())
    changes.storages.add(copy._cdata)
