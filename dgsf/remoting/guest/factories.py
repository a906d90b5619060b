"""Tensors made on the device from nothing: kernels for every factory operator of torch.

They take a device but no tensor, so torch asks the backend itself.  `empty` and its kin ask for no memory yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dgsf.remoting.guest.dispatch import dispatch
from dgsf.remoting.guest.failures import guarded
from dgsf.remoting.guest.plans import plan_of
from dgsf.remoting.guest.tensor import pending
from dgsf.remoting.guest.transfer import check_index, fetch

_NOT_OURS = ("from_file", "sparse", "quantized", "_cudnn", "_make_dep_token")


def factory_overloads() -> list[Any]:
    """Every aten overload that takes a device and no tensor."""
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::") or any(part in name for part in _NOT_OURS):
            continue
        bare, _, overload = name.removeprefix("aten::").partition(".")
        func = getattr(getattr(torch.ops.aten, bare), overload or "default", None)
        if func is not None and _is_factory(func._schema):
            found.append(func)
    return found


def _is_factory(schema: Any) -> bool:
    kinds = [str(argument.type) for argument in schema.arguments]
    return any(argument.name == "device" for argument in schema.arguments) and not any(
        "Tensor" in kind for kind in kinds
    )


def _empty(size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
           memory_format: Any = None) -> Any:  # fmt: skip
    _strided_only(layout)
    check_index(device)
    dtype = dtype or torch.get_default_dtype()
    if memory_format in (None, torch.contiguous_format, torch.preserve_format):
        return pending(dtype, size, _contiguous(size))
    shape = torch.empty(size, dtype=dtype, device="meta", memory_format=memory_format)
    return pending(dtype, size, shape.stride())


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
                   pin_memory: Any = None) -> Any:  # fmt: skip
    _strided_only(layout)
    check_index(device)
    return pending(dtype or torch.get_default_dtype(), size, stride)


def _strided_only(layout: Any) -> None:
    if layout not in (None, torch.strided):
        raise NotImplementedError(f"a remote device holds dense tensors only, not {layout}")


def _contiguous(size: Any) -> list[int]:
    strides, step = [], 1
    for width in reversed(size):
        if width < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {width}: {list(size)}")
        strides.append(step)
        step *= max(width, 1)
    return strides[::-1]


def _kernel(func: Any) -> Any:
    plan_of(func)

    def make(*args: Any, **kwargs: Any) -> Any:
        check_index(kwargs.get("device"))
        return dispatch(func, args, kwargs)

    return make


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> Any:
    """What torch calls to fill a new tensor where it has switched the tensor class's own dispatch off."""
    dispatch(torch.ops.aten.copy_.default, (target, source), {})
    return target


def _value(source: Any) -> Any:
    """`torch.tensor([loss, ...])` reads each of them where the tensor class's own dispatch is off, too."""
    return fetch(source).item()


def register(library: Any) -> None:
    """Give torch the kernels."""
    lazy: dict[str, Callable[..., Any]] = {"aten::empty.memory_format": _empty, "aten::empty_strided": _empty_strided}
    for func in factory_overloads():
        name = func.name()
        library.impl(name.removeprefix("aten::"), guarded(lazy.get(name) or _kernel(func)), "PrivateUse1")
    library.impl("_copy_from", guarded(_copy_from), "PrivateUse1")
    library.impl("_local_scalar_dense", guarded(_value), "PrivateUse1")
