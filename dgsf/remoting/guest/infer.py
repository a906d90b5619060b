"""What comes out of a call, without doing it: torch's meta kernels, or the executor's answer, as one description."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from dgsf.errors import OpNotAllowed
from dgsf.remoting.guest.bound import bound
from dgsf.remoting.guest.layout import set_bits
from dgsf.remoting.guest.plans import Place, Plan, Refit, Spec, Value
from dgsf.remoting.guest.tensor import RemoteTensor

_META = torch.device("meta")


@dataclass(slots=True)
class Outcome:
    """Results, and changes of arguments' metadata."""

    results: tuple[Any, ...]
    refits: tuple[Refit, ...] = ()


def infer(plan: Plan, args: Any, kwargs: dict[str, Any]) -> Outcome:
    """Run the operator on tensors without data and look at what comes out."""
    shadows: dict[int, torch.Tensor] = {}
    meta_args = [_shadow(value, shadows) for value in args]
    meta_kwargs = {name: _shadow(value, shadows) for name, value in kwargs.items()}
    if plan.takes_device:
        meta_kwargs["device"] = _META
    with torch.no_grad():
        made = plan.func(*meta_args, **meta_kwargs)
    absolute = _absolute_offset(plan, args, kwargs)
    return Outcome(_describe(plan, made, absolute), _refits(plan, args, kwargs, shadows))


def _shadow(value: Any, shadows: dict[int, torch.Tensor]) -> Any:
    if isinstance(value, RemoteTensor):
        found = shadows.get(id(value))
        if found is None:
            layout = value._m
            found = torch.empty_strided(layout.size, layout.stride, dtype=layout.dtype, device=_META)
            set_bits(found, layout.bits)
            shadows[id(value)] = found
        return found
    if isinstance(value, list | tuple):
        return [_shadow(item, shadows) for item in value]
    return value


def _absolute_offset(plan: Plan, args: Any, kwargs: dict[str, Any]) -> bool:
    """as_strided may name its place in the storage itself."""
    if not plan.name.startswith("aten::as_strided"):
        return False
    return (args[3] if len(args) > 3 else kwargs.get("storage_offset")) is not None


def _describe(plan: Plan, made: Any, absolute: bool) -> tuple[Any, ...]:
    if not plan.returned:
        return ()
    values = (made,) if len(plan.returned) == 1 else tuple(made)
    view = plan.view and not absolute
    return tuple(
        place if isinstance(place, Place) else _result(value, view, plan.view)
        for place, value in zip(plan.returned, values, strict=True)
    )


def _result(value: Any, view: bool, shares: bool) -> Any:
    if value is None:
        return None
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            raise OpNotAllowed(f"tensors of layout {value.layout} cannot live on a remote device; use dense ones")
        layout = bound.layouts.like(value)
        return Spec(layout, value.storage_offset(), view, shares)
    if isinstance(value, list | tuple):
        return [_result(item, view, shares) for item in value]
    return Value(value)


def _refits(plan: Plan, args: Any, kwargs: dict[str, Any], shadows: dict[int, torch.Tensor]) -> tuple[Refit, ...]:
    found = []
    for place in plan.written:
        tensor = place.get(args, kwargs)
        if not isinstance(tensor, RemoteTensor):
            continue
        shadow = shadows[id(tensor)]
        layout = bound.layouts.like(shadow)
        if layout is not tensor._m or shadow.storage_offset() != 0:
            found.append(Refit(place, Spec(layout, shadow.storage_offset())))
    return tuple(found)


def tensors_returned(plan: Plan, args: Any, kwargs: dict[str, Any]) -> int:
    """How many new tensors a call makes whose metadata is not known yet."""
    if "List[Tensor]" in plan.returned:
        if plan.name.startswith("aten::_histogramdd_bin_edges"):  # it has no meta kernel
            return int(args[0].shape[-1])
        return sum(len(result) for result in infer(plan, args, kwargs).results if isinstance(result, list))
    return sum(1 for kind in plan.returned if not isinstance(kind, Place) and "Tensor" in kind)


def from_answer(plan: Plan, args: Any, told: list[Any]) -> tuple[Any, ...]:
    """The results that the executor told of, in the order of the operator's schema."""
    rest = [_told(plan, args, item) for item in told]
    found: list[Any] = []
    for kind in plan.returned:
        if isinstance(kind, Place):
            found.append(kind)
        elif kind == "List[Tensor]":
            found.append(rest)
            rest = []
        else:
            found.append(rest.pop(0))
    return tuple(found)


def _told(plan: Plan, args: Any, item: Any) -> Any:
    if item is None:
        return None
    if not isinstance(item, tuple):
        return Value(item)
    dtype, sizes, strides, offset = item
    of = args[0] if plan.view and isinstance(args[0], RemoteTensor) else None
    base, bits = (0, 0) if of is None else (of.storage_offset(), of._m.bits)
    return Spec(bound.layouts.of(dtype, sizes, strides, bits), offset - base, plan.view, plan.view)
