"""Scripted and traced modules in files: saved as copies on the CPU, as `torch.save` does it, and moved when loaded."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from dgsf.remoting.guest.replacing import replace, standing_for
from dgsf.remoting.guest.tensor import DEVICE_NAME, RemoteTensor


def install(stack: ExitStack) -> None:
    for kind in (torch.jit.RecursiveScriptModule, torch.jit.TopLevelTracedModule):
        for name in ("save", "save_to_buffer"):
            replace(stack, kind, name, _from_here(getattr(kind, name)))
    replace(stack, torch.jit, "load", _loading(torch.jit.load))


def _from_here(original: Any) -> Any:
    def save(self: Any, *args: Any, **kwargs: Any) -> Any:
        return original(_local(self), *args, **kwargs)

    return standing_for(save, original)


def _local(module: Any) -> Any:
    """The module, or a copy on the CPU of one that is on the device."""
    if not any(isinstance(each, RemoteTensor) for each in (*module.parameters(), *module.buffers())):
        return module
    copied = copy.deepcopy(module)
    exchange(copied, torch.Tensor.cpu)
    return copied


def exchange(module: Any, fn: Callable[[Any], Any]) -> None:
    """Give a scripted module other tensors in place; Python's own attributes of it are views of these.

    What several names share, they share afterwards.
    """
    made: dict[tuple[Any, ...], Any] = {}
    for part in module.modules():
        for held in (torch._C.ParameterDict(part._c), torch._C.BufferDict(part._c)):
            for name, tensor in held.items():
                place = (tensor.data_ptr() or id(tensor), tensor.shape, tensor.stride(), tensor.dtype)
                if place not in made:
                    made[place] = tensor, fn(tensor.detach()).requires_grad_(tensor.requires_grad)
                part._c.setattr(name, made[place][1])


def is_loaded(module: Any) -> bool:
    """Whether it came from a file: then its parameters are plain tensors, which torch's own way of moving refuses."""
    return any(not isinstance(each, torch.nn.Parameter) for each in module.parameters())


def _loading(original: Any) -> Any:
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if map_location is not None and torch.device(map_location).type == DEVICE_NAME:
            return original(f, "cpu", *args, **kwargs).to(map_location)
        return original(f, map_location, *args, **kwargs)

    return standing_for(load, original)
