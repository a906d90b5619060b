"""The results of calls that have several, write into arguments, or change an argument's metadata."""

from __future__ import annotations

from typing import Any

import torch

from dgsf.remoting.guest import tensor as tensors
from dgsf.remoting.guest.bound import bound
from dgsf.remoting.guest.kinds import Kind
from dgsf.remoting.guest.layout import set_bits
from dgsf.remoting.guest.plans import ASK, Entry, Place, Spec, Value
from dgsf.remoting.guest.tensor import Handle, RemoteTensor, refit
from dgsf.remoting.protocol import TENSOR

_make = torch.Tensor._make_wrapper_subclass
_strided = torch.strided


def many(entry: Entry, args: Any, kwargs: Any, handles: list[int], floats: list[float]) -> Any:
    """Send a call and make its results by the entry's list of them."""
    if entry.how == ASK:
        from dgsf.remoting.guest import learn

        return learn.ask_again(entry, args, kwargs, handles, floats)
    fresh = own_handles(entry, args, kwargs, handles)
    first = bound.call(entry.kind, handles, floats)
    for tensor, handle, spec in fresh:
        refit(tensor, spec.layout, spec.offset, handle)
    return build(entry.results, args, kwargs, first)


def own_handles(entry: Entry, args: Any, kwargs: Any, handles: list[int]) -> list[tuple[RemoteTensor, Handle, Spec]]:
    """A new handle for each argument whose metadata will change: others may share the old one."""
    fresh = []
    for change in entry.refits:
        tensor = change.place.get(args, kwargs)
        handle = alias(tensor)
        handles[handles.index(tensor._h.id)] = handle.id
        fresh.append((tensor, handle, change.spec))
    return fresh


def alias(tensor: RemoteTensor) -> Handle:
    """Another handle of the same remote tensor, with metadata of its own."""
    stream, kinds = bound.need(), bound.layouts.kinds
    if "alias" not in kinds:
        kinds["alias"] = Kind("aten::alias", [{TENSOR: 0}])
    return Handle(stream.call(kinds["alias"], [tensor._h.id]), stream.free, tensor._h.origin(tensor._m))


def build(results: tuple[Any, ...], args: Any, kwargs: Any, first: int) -> Any:
    """The results of one call, its new handles beginning at `first`."""
    base = args[0] if args and type(args[0]) is RemoteTensor else None
    made: list[Any] = []
    for result in results:
        kind = type(result)
        if kind is Spec:
            made += _tensors((result,), base, first)
            first += 1
        elif kind is list:
            made.append(_tensors(result, base, first))
            first += len(result)
        elif kind is Place:
            made.append(result.get(args, kwargs))
        elif kind is Value:
            made.append(result.value)
        else:
            made += _tensors((None,), base, first)
            first += 1
    if len(made) == 1:
        return made[0]
    return tuple(made) if made else None


def _tensors(specs: Any, base: RemoteTensor | None, first: int) -> list[RemoteTensor | None]:
    """The tensors of consecutive handles; written for lists of hundreds."""
    free, device = bound.need().free, tensors.DEVICE
    start, root = (0, None) if base is None else (base.storage_offset(), base._h.origin(base._m))
    made: list[Any] = []
    for number, spec in enumerate(specs, first):
        if spec is None:
            free(number)  # nothing will ever have it
            made.append(None)
            continue
        layout = spec.layout
        offset = spec.offset + start if spec.view else spec.offset
        new = _make(RemoteTensor, layout.size, layout.stride, offset, None, layout.dtype, _strided, device)
        if layout.bits:
            set_bits(new, layout.bits)
        new._h = Handle(number, free, root if spec.shares else None)
        new._m = layout
        made.append(new)
    return made


def new_handles(results: tuple[Any, ...]) -> int:
    """How many handles a call with these results uses up."""
    count = 0
    for result in results:
        if isinstance(result, list):
            count += len(result)
        elif result is None or isinstance(result, Spec):
            count += 1
    return count
