"""Nested tensors cannot live on a remote device: whoever asks for one there is told so at once."""

from __future__ import annotations

from contextlib import ExitStack
from importlib import import_module
from typing import Any, NoReturn

import torch

from dgsf.errors import OpNotAllowed
from dgsf.remoting.guest.bound import bound
from dgsf.remoting.guest.failures import guarded
from dgsf.remoting.guest.replacing import replace, standing_for
from dgsf.remoting.guest.tensor import DEVICE_NAME, RemoteTensor

REFUSED = "nested tensors cannot live on a remote device: pad the parts to one size, or keep them on the CPU"


def refuse(*_: Any, **__: Any) -> NoReturn:
    raise OpNotAllowed(REFUSED)


def register(library: Any) -> None:
    """What torch calls to move a nested tensor of the CPU."""
    library.impl("_to_copy", guarded(refuse), "NestedTensorPrivateUse1")


def install(stack: ExitStack) -> None:
    for name in torch.nested.__all__:
        replace(stack, torch.nested, name, _here_only(getattr(torch.nested, name)))
    kind = import_module("torch.nested._internal.nested_tensor").NestedTensor
    make = kind.__new__

    def __new__(cls: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
        return refuse() if isinstance(values, RemoteTensor) else make(cls, values, *args, **kwargs)

    replace(stack, kind, "__new__", staticmethod(__new__))


def _here_only(function: Any) -> Any:
    def made(*args: Any, **kwargs: Any) -> Any:
        if any(_is_remote(value) for value in (*args, *kwargs.values())):
            refuse()
        return function(*args, **kwargs)

    return standing_for(made, function)


def _is_remote(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(_is_remote(item) for item in value)
    if isinstance(value, torch.device):
        return value.type in (DEVICE_NAME, _name())
    if isinstance(value, str):
        return value.partition(":")[0] in (DEVICE_NAME, _name())
    return isinstance(value, RemoteTensor)


def _name() -> str:
    return bound.name.partition(":")[0]
