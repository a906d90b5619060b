"""Between the memory of this process and the device's: uploads, downloads, and memory asked for late.

`empty` asks for nothing: the usual next step is a copy from the CPU that fills it, and then one upload does both.
"""

from __future__ import annotations

from typing import Any

import torch

from dgsf.errors import UsageError
from dgsf.remoting.guest.bound import OTHER_SESSION, bound
from dgsf.remoting.guest.cutting import dense_order, is_dense
from dgsf.remoting.guest.elements import cut_from_whole
from dgsf.remoting.guest.encode import DTYPE_CODE
from dgsf.remoting.guest.kinds import Kind
from dgsf.remoting.guest.layout import PENDING, Layout
from dgsf.remoting.guest.memory import check_fits
from dgsf.remoting.guest.tensor import Handle, RemoteTensor, share, wrap
from dgsf.remoting.protocol import TENSOR


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor whose bytes are its values: no lazy conjugation or negation, no other layout."""
    if tensor.layout is not torch.strided:
        raise NotImplementedError(f"a {tensor.layout} tensor cannot be moved to a remote device; use .to_dense() first")
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    return tensor.detach().resolve_conj().resolve_neg()


def upload(tensor: torch.Tensor) -> RemoteTensor:
    """A copy of a CPU tensor on the device, contiguous."""
    stream, local = bound.need(), plain(tensor).contiguous()
    check_fits(local.dtype, local.shape, local.stride())
    return wrap(bound.layouts.like(local), stream.upload(local))


def fetch(tensor: RemoteTensor) -> torch.Tensor:
    """Its values, contiguous; UsageError for a tensor of an earlier session, whose number may be another's now."""
    stream = bound.need()
    if tensor._h.free != stream.free:
        raise UsageError(OTHER_SESSION)
    if tensor._m is PENDING:
        materialise(tensor)
    return stream.fetch(tensor._h.id) if bound.elements else cut_from_whole(tensor, stream)


def materialise(tensor: RemoteTensor) -> None:
    """Ask for the memory that a pending tensor stands for."""
    layout = bound.layouts.like(tensor)
    if tensor._h.id < 0:
        if layout.empty is None:
            layout.empty = _empty_kind(layout)
        tensor._h.become(bound.call(layout.empty, []))
    tensor._m = layout


def _empty_kind(layout: Layout) -> Kind:
    size, stride = list(layout.size), list(layout.stride)
    return Kind("aten::empty_strided", [size, stride], {"dtype": DTYPE_CODE[layout.dtype]})


def fill_pending(tensor: RemoteTensor, source: torch.Tensor) -> bool:
    """Make a pending tensor of a CPU tensor's values, in one upload if its layout allows; False if it does not."""
    if tensor._h.id >= 0 or tensor.shape != source.shape or tensor._h.free != bound.need().free:
        return False
    order = dense_order(tensor)
    if order is None:
        return False
    stream, layout = bound.need(), bound.layouts.like(tensor)
    local = plain(source).to(tensor.dtype)
    if order == list(range(tensor.dim())):
        tensor._h.become(stream.upload(local.contiguous()))
    else:
        inner = Handle(stream.upload(local.permute(order).contiguous()), stream.free)
        back = [order.index(dim) for dim in range(len(order))]
        kinds, key = bound.layouts.kinds, ("permute", *back)
        if key not in kinds:
            kinds[key] = Kind("aten::permute", [{TENSOR: 0}, back])
        tensor._h.become(stream.call(kinds[key], [inner.id]))
    tensor._m = layout
    return True


def download(tensor: RemoteTensor) -> torch.Tensor:
    """A CPU copy of a remote tensor, with its strides where it is dense."""
    local = fetch(tensor)
    if local.stride() == tensor.stride() or not is_dense(tensor):
        return local
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(local)


def to_copy(send: Any, plan: Any, args: Any, kwargs: Any) -> Any:
    """`_to_copy`: within the device it is an operation, to the CPU a download."""
    source, device = args[0], kwargs.get("device")
    if not isinstance(source, RemoteTensor):
        return fresh_copy(source, kwargs)
    if device is None or device.type == "dgsf":
        check_index(device)
        return send(plan, args, {name: value for name, value in kwargs.items() if value is not None})
    local = download(source)
    return local.to(
        device=device, dtype=kwargs.get("dtype"), memory_format=kwargs.get("memory_format") or torch.preserve_format
    )


def fresh_copy(source: torch.Tensor, kwargs: Any) -> RemoteTensor:
    """A CPU tensor's copy on the device, of another dtype or memory format if so asked."""
    check_index(kwargs.get("device"))
    local = source.detach().to(
        dtype=kwargs.get("dtype"), memory_format=kwargs.get("memory_format") or torch.preserve_format
    )
    from dgsf.remoting.guest.tensor import pending

    new = pending(local.dtype, local.shape, local.stride())
    if not fill_pending(new, local):
        return upload(local)
    return new


def check_index(device: torch.device | None) -> None:
    if device is not None and device.index not in (None, 0):
        raise RuntimeError(f"there is only one remote device, {bound.name}; {device} does not exist")


def again(tensor: RemoteTensor) -> RemoteTensor:
    """One more tensor of the same handle: what `detach` and `alias` give."""
    if tensor._m is PENDING:
        materialise(tensor)
    return share(tensor._m, tensor._h, tensor.storage_offset())
