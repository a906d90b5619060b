"""`torch.cuda.FloatTensor` and its kin under the alias: the older way to name a device and a type in one."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch

from dgsf.remoting.guest import tensor as tensors
from dgsf.remoting.guest.replacing import hearing, replace, standing_for
from dgsf.remoting.guest.tensor import DEVICE_NAME, RemoteTensor

_DTYPES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "LongTensor": torch.int64,
    "IntTensor": torch.int32,
    "ShortTensor": torch.int16,
    "CharTensor": torch.int8,
    "ByteTensor": torch.uint8,
    "BoolTensor": torch.bool,
}
_PREFIX = "torch.cuda."


class _Kind(type):
    """The class of `torch.cuda.FloatTensor`: a tensor is one by its device and type."""

    dtype: torch.dtype

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, RemoteTensor) and instance.dtype is cls.dtype

    def __call__(cls, *args: Any, **_: Any) -> Any:
        """Made as its kin of the CPU is: of sizes, a list or another tensor."""
        source = [value.cpu() if isinstance(value, RemoteTensor) else value for value in args]
        return getattr(torch, cls.__name__)(*source).to(tensors.DEVICE)


_KINDS = {name: _Kind(name, (), {"dtype": dtype, "__module__": "torch.cuda"}) for name, dtype in _DTYPES.items()}


def install(stack: ExitStack) -> None:
    for name, kind in _KINDS.items():
        replace(stack, torch.cuda, name, kind)
    replace(stack, torch, "set_default_tensor_type", _default(torch.set_default_tensor_type))
    replace(stack, torch.Tensor, "type", _type(hearing(torch.Tensor.type)))


def _kind_of(name: Any) -> Any:
    """The kind that a name of one means."""
    return _KINDS.get(name.removeprefix(_PREFIX), name) if isinstance(name, str) and name.startswith(_PREFIX) else name


def _default(original: Any) -> Any:
    """`set_default_tensor_type`, which names a type and a device in one; one of the CPU takes the device back."""

    def set_default_tensor_type(t: Any, /) -> None:
        kind = _kind_of(t)
        if not isinstance(kind, _Kind):
            original(kind)
            if torch._C._get_default_device() == "cpu" and torch.get_default_device().type != "cpu":
                torch.set_default_device(None)
            return
        if not kind.dtype.is_floating_point:
            raise TypeError("invalid type object: only floating-point types are supported as the default type")
        torch.set_default_dtype(kind.dtype)
        torch.set_default_device(tensors.DEVICE)

    return standing_for(set_default_tensor_type, original)


def _type(original: Any) -> Any:
    """`Tensor.type`, which tells the name of a type, or converts to one."""

    def type_(self: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if dtype is None:
            name = original(self)
            return name.replace(f"torch.{DEVICE_NAME}.", _PREFIX) if isinstance(self, RemoteTensor) else name
        dtype = _kind_of(dtype)
        if isinstance(dtype, _Kind):
            return self.to(tensors.DEVICE, dtype.dtype)
        return original(self, dtype, *args, **kwargs)

    return type_
