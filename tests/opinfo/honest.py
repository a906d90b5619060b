"""A check beside the results: that what the guest believes of every tensor is what the device holds."""

from __future__ import annotations

from typing import Any

from dgsf.remoting.guest import dispatch, tensor
from dgsf.remoting.guest.bound import bound
from dgsf.remoting.guest.layout import PENDING


class MetadataDiffers(Exception):
    """The guest has a wrong idea of a tensor."""


def install() -> None:
    """Look at every tensor that comes out of the guest's dispatch."""

    def checked(func: Any, args: Any, kwargs: Any) -> Any:
        made = dispatch.dispatch(func, args, kwargs)
        for item in (made, *args, *kwargs.values()):
            for value in item if isinstance(item, list | tuple) else [item]:
                if isinstance(value, tensor.RemoteTensor):
                    _look(func, value)
        return made

    tensor.set_dispatch(checked)


def _real(meta: Any) -> Any:
    """Without the strides of dimensions of one element, which mean nothing."""
    dtype, sizes, strides, offset = meta
    return dtype, sizes, [stride for size, stride in zip(sizes, strides, strict=True) if size > 1], offset


def _look(func: Any, value: tensor.RemoteTensor) -> None:
    if value._m is PENDING:
        return
    truth = bound.need().meta(value._h.id)
    belief = (value.dtype, tuple(value.shape), tuple(value.stride()), value.storage_offset())
    if _real(truth) != _real(belief) and value.numel():
        raise MetadataDiffers(f"{func}: believed {belief}, is {truth}")
