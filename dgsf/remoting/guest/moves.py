"""Whole modules and checkpoints on their way to or from the device.

A module's parameters keep their identity when they move, as they do on a CUDA device: weights stay tied, and an
optimizer that was built before goes on with the same parameters.
"""

from __future__ import annotations

from typing import Any

import torch

from dgsf.remoting.guest.lending import lending
from dgsf.remoting.guest.tensor import DEVICE_NAME, RemoteTensor

_inside: list[bool] = []  # a move is under way: its submodules need no second look


def applying(original: Any) -> Any:
    """`Module._apply` that swaps a parameter's content instead of making a new parameter, if remote ones take part."""

    def _apply(self: Any, fn: Any, recurse: bool = True) -> Any:
        if _inside or not _crosses(self, fn):
            return original(self, fn, recurse)
        future = torch.__future__
        before = future.get_swap_module_params_on_conversion()
        future.set_swap_module_params_on_conversion(True)
        _inside.append(True)
        try:
            with lending(_tensors_of(self)):
                return original(self, fn, recurse)
        finally:
            _inside.pop()
            future.set_swap_module_params_on_conversion(before)

    return _apply


def _tensors_of(module: Any) -> list[torch.Tensor]:
    return [tensor.detach() for tensor in (*module.parameters(), *module.buffers())]


def _crosses(module: Any, fn: Any) -> bool:
    """Whether this conversion begins or ends on the device."""
    parameter = next(iter(module.parameters()), None)
    if parameter is None:
        return False
    if isinstance(parameter, RemoteTensor):
        return True
    with torch.no_grad():
        probe = fn(torch.empty(0, dtype=parameter.dtype))
    if isinstance(probe, RemoteTensor) and any(torch.nn.parameter.is_lazy(each) for each in module.parameters()):
        raise NotImplementedError("lazy parameters cannot be moved to a remote device: run the module once before")
    return isinstance(probe, RemoteTensor)


def loading(original: Any) -> Any:
    """`torch.load` whose map_location may be the remote device: read here, then moved."""

    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not _is_remote(map_location):
            return original(f, map_location, *args, **kwargs)
        return _Mover(torch.device(map_location)).value(original(f, "cpu", *args, **kwargs))

    return load


def _is_remote(location: Any) -> bool:
    if isinstance(location, str):
        location = torch.device(location)
    return isinstance(location, torch.device) and location.type == DEVICE_NAME


class _Mover:
    """Moves the tensors of a loaded object; one that occurs twice stays one."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._moved: dict[int, tuple[Any, Any]] = {}

    def value(self, value: Any) -> Any:
        found = self._moved.get(id(value))
        if found is not None:
            return found[1]
        new = self._new(value)
        self._moved[id(value)] = (value, new)
        return new

    def _new(self, value: Any) -> Any:
        if isinstance(value, torch.nn.Module):
            return value.to(self._device)
        if isinstance(value, torch.nn.Parameter):
            return torch.nn.Parameter(value.detach().to(self._device), value.requires_grad)
        if isinstance(value, torch.Tensor):
            return value.detach().to(self._device).requires_grad_(value.requires_grad)
        if isinstance(value, dict):
            for name in value:
                value[name] = self.value(value[name])
            return value
        if isinstance(value, list):
            value[:] = [self.value(item) for item in value]
            return value
        if type(value) is tuple:
            return tuple(self.value(item) for item in value)
        return value
