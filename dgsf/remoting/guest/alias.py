"""`device_alias="cuda"`: programs that say cuda reach the remote device, unchanged, while it is attached.

`torch.device("cuda")` stays what it is; every function that takes a device understands it as the remote one, and
remote tensors say that they are on cuda:0.  Undone on exit.
"""

from __future__ import annotations

from contextlib import ExitStack
from importlib import import_module
from typing import Any

import torch

from dgsf.errors import UsageError
from dgsf.remoting.guest import accelerator, cuda, fakes, placing, tensor_types
from dgsf.remoting.guest.pinning import METHODS, constructors
from dgsf.remoting.guest.replacing import hearing, replace, standing_for
from dgsf.remoting.guest.tensor import DEVICE_NAME, RemoteTensor


def translate(device: Any) -> Any:
    """A device as the user said it, with cuda understood as the remote one."""
    if isinstance(device, bool) or device is None:
        return device
    if isinstance(device, int):
        device = torch.device("cuda", device)
    elif isinstance(device, str):
        if not device.startswith("cuda"):
            return device
        device = torch.device(device)
    if isinstance(device, torch.device) and device.type == "cuda":
        if device.index not in (None, 0):
            raise RuntimeError(f"there is only one remote device, cuda:0; {device} does not exist")
        return torch.device(DEVICE_NAME, 0)
    return device


def install(stack: ExitStack, name: str) -> None:
    if name != "cuda":
        raise UsageError(f"device_alias {name!r} is not known; only 'cuda' is")
    for constructor in constructors():
        replace(stack, torch, constructor, _named(getattr(torch, constructor)))
    for method in METHODS:
        replace(stack, torch.Tensor, method, _named(getattr(torch.Tensor, method)))
    replace(stack, torch.Tensor, "to", _to(hearing(torch.Tensor.to)))
    replace(stack, torch.Tensor, "cuda", _to_cuda)
    replace(stack, RemoteTensor, "device", property(lambda self: torch.device("cuda", 0)))
    replace(stack, RemoteTensor, "is_cuda", property(lambda self: True))
    replace(stack, RemoteTensor, "get_device", lambda self: 0)
    for owner, function in ((torch, "normal"), (torch.fft, "fftfreq"), (torch.fft, "rfftfreq")):
        replace(stack, owner, function, _named(getattr(owner, function)))
    tensor_types.install(stack)
    placing.install(stack)
    _classes(stack)
    _autocast_queries(stack)
    fakes.install(stack, translate, torch.device("cuda", 0))
    accelerator.say(stack, name)
    cuda.install(stack)


def _named(function: Any) -> Any:
    def made(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = translate(kwargs["device"])
        return function(*args, **kwargs)

    return standing_for(made, function)


def _to(original: Any) -> Any:
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], str | int | torch.device):
            args = (translate(args[0]), *args[1:])
        if "device" in kwargs:
            kwargs["device"] = translate(kwargs["device"])
        return original(self, *args, **kwargs)

    return to


def _to_cuda(self: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
    target = translate("cuda" if device is None else device)
    return self.to(target, memory_format=memory_format or torch.preserve_format)


def _first(original: Any) -> Any:
    """An initialiser whose first argument names a device."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        args, kwargs = _typed(args, kwargs)
        original(self, *args, **kwargs)

    return __init__


def _typed(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of a function whose first one is a type of device, or names one."""
    first = (_type(args[0]), *args[1:]) if args else ()
    return first, {name: _type(v) if name in ("device", "device_type") else v for name, v in kwargs.items()}


def _type(device: Any) -> Any:
    return DEVICE_NAME if device == "cuda" else device


def _scaler(original: Any) -> Any:
    def __init__(self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
        original(self, _type(device), *args, **kwargs)

    return __init__


def _autocast_queries(stack: ExitStack) -> None:
    """Whether autocast is on is known to torch under the device's own name; code that does not name one means cuda."""
    get_dtype, set_dtype = torch.get_autocast_dtype, torch.set_autocast_dtype
    is_on, switch = torch.is_autocast_enabled, torch.set_autocast_enabled

    def set_autocast_enabled(*args: Any, **kwargs: Any) -> None:
        if len(args) + len(kwargs) == 1:  # the older form, without a device
            switch(DEVICE_NAME, *(args or kwargs.values()))
            return
        args, kwargs = _typed(args, kwargs)
        switch(*args, **kwargs)

    def is_autocast_enabled(device_type: str = "cuda") -> bool:
        return bool(is_on(_type(device_type)))

    def set_autocast_dtype(*args: Any, **kwargs: Any) -> None:
        args, kwargs = _typed(args, kwargs)
        set_dtype(*args, **kwargs)

    new: dict[str, Any] = {
        "is_autocast_enabled": is_autocast_enabled,
        "set_autocast_enabled": set_autocast_enabled,
        "get_autocast_dtype": lambda device_type: get_dtype(_type(device_type)),
        "set_autocast_dtype": set_autocast_dtype,
        "get_autocast_gpu_dtype": lambda: get_dtype(DEVICE_NAME),
        "set_autocast_gpu_dtype": lambda dtype: set_dtype(DEVICE_NAME, dtype),
    }
    for name, function in new.items():
        replace(stack, torch, name, standing_for(function, getattr(torch, name)))


def _loading(original: Any) -> Any:
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        return original(f, _places(map_location), *args, **kwargs)

    return standing_for(load, original)


def _places(location: Any) -> Any:
    """A map_location, which may say where to go for each place that there was."""
    if callable(location):
        return placing.heard(location)
    if isinstance(location, dict):
        return {before: translate(now) for before, now in location.items()}
    return translate(location)


def _classes(stack: ExitStack) -> None:
    autocast = torch.amp.autocast_mode.autocast
    replace(stack, autocast, "__init__", _first(autocast.__init__))
    scaler = torch.amp.grad_scaler.GradScaler
    replace(stack, scaler, "__init__", _scaler(scaler.__init__))
    context = import_module("torch.utils._device").DeviceContext
    original = context.__init__

    def enter(self: Any, device: Any) -> None:
        original(self, translate(device))

    replace(stack, context, "__init__", enter)
    load = _loading(torch.load)
    replace(stack, torch, "load", load)
    replace(stack, torch.serialization, "load", load)
    scripted = torch.jit.load

    def load_script(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        return scripted(f, translate(map_location), *args, **kwargs)

    replace(stack, torch.jit, "load", standing_for(load_script, scripted))
    default = torch.set_default_device
    replace(stack, torch, "set_default_device", lambda device: default(translate(device)))
