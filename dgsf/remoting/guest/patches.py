"""What torch's Python code must do differently while a remote device is attached; undone when it is not.

Each change is small and looks for remote tensors first: CPU code in the same program is not touched.
"""

from __future__ import annotations

from contextlib import ExitStack
from importlib import import_module
from typing import Any

import torch

from dgsf.remoting.guest import (
    accelerator,
    archives,
    compiling,
    default_dtype,
    derivatives,
    encoders,
    flexible,
    lists,
    loads,
    moves,
    nested,
    outdated,
    parallel,
    pinning,
    scripts,
    storages,
    subclasses,
)
from dgsf.remoting.guest.bound import bound
from dgsf.remoting.guest.replacing import let_scripts_find_them, replace
from dgsf.remoting.guest.tensor import DEVICE_NAME, RemoteTensor

_NO_ALIAS = (
    "the remote device is called 'dgsf' here: use that, or ask for it as cuda "
    "with dgsf.attach(alias='cuda'), of a function with device_alias='cuda'"
)


def install(stack: ExitStack) -> None:
    """Make all the changes; the stack undoes them."""
    stack.callback(_no_remote_default)
    replace(stack, torch.nn.Module, "_apply", moves.applying(torch.nn.Module._apply))
    swap = "get_swap_module_params_on_conversion"
    replace(stack, torch.__future__, swap, moves.wishing_to_swap(getattr(torch.__future__, swap)))
    replace(stack, torch.utils, "swap_tensors", moves.swapping(torch.utils.swap_tensors))
    save = archives.saving(torch.save)
    replace(stack, torch, "save", save)
    replace(stack, torch.serialization, "save", save)
    replace(stack, torch.Tensor, "data", moves.exchangeable_data)
    replace(stack, torch, "Generator", _Generator)
    accelerator.install(stack)
    default_dtype.install(stack)
    encoders.install(stack)
    flexible.install(stack)
    loads.install(stack)
    nested.install(stack)
    outdated.install(stack)
    parallel.install(stack)
    pinning.install(stack)
    scripts.install(stack)
    storages.install(stack)
    subclasses.install(stack)
    let_scripts_find_them(stack)
    derivatives.install(stack)
    compiling.install(stack)
    _tracing(stack)
    for name in ("torch.optim.optimizer", "torch.utils._foreach_utils"):  # many tensors in one call, as on CUDA
        kinds = import_module(name)._foreach_supported_types
        kinds.append(RemoteTensor)
        stack.callback(kinds.remove, RemoteTensor)
    for name in lists.names():
        replace(stack, torch, name, lists.direct(name))
    for optimizer in lists.optimizers():
        replace(stack, optimizer, "_init_group", lists.gathering(optimizer.__dict__["_init_group"]))
    group = "_group_tensors_by_device_and_dtype"
    replace(stack, torch._C, group, lists.grouping(getattr(torch._C, group)))


def _no_remote_default() -> None:
    """A default device that is there no more would make every new tensor of the CPU an error."""
    if torch.get_default_device().type == DEVICE_NAME:
        torch.set_default_device(None)


class _GeneratorType(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch._C.Generator)


class _Generator(metaclass=_GeneratorType):
    """A generator for the remote device is one of this process: its numbers are drawn here and uploaded."""

    def __new__(cls, device: Any = None) -> Any:
        kind = torch.device(device).type if device is not None else "cpu"
        if kind not in (DEVICE_NAME, "cuda"):
            return torch._C.Generator(device)
        made = _Here()
        made._named = torch.device(bound.name)
        return made


class _Here(torch._C.Generator):
    """It says the device that it was made for, as programs compare it with their tensors'."""

    _named: torch.device

    @property
    def device(self) -> Any:
        return self._named


def _tracing(stack: ExitStack) -> None:
    """Tracers (`make_fx`, `func.linearize`) note operations on the tensor classes that they know.

    Operations with a remote tensor that they have not seen made they would leave out, and note what we ask of torch.
    """
    tracer = import_module("torch.fx.experimental.proxy_tensor")
    replace(stack, tracer, "HANDLED_TYPES", (*tracer.HANDLED_TYPES, RemoteTensor))


def hint_at_alias(stack: ExitStack) -> None:
    """A program that says cuda without an alias, on a machine without CUDA, hears of the alias."""
    original = torch.cuda._lazy_init

    def _lazy_init() -> None:
        try:
            original()
        except (AssertionError, RuntimeError) as error:
            raise type(error)(f"{error}; {_NO_ALIAS}") from None

    replace(stack, torch.cuda, "_lazy_init", _lazy_init)
