"""`torch.accelerator`, which asks torch's own allocator for its answers: a remote device's come from the session."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch

from dgsf.remoting.guest import memory
from dgsf.remoting.guest.backend import MODULE
from dgsf.remoting.guest.replacing import replace
from dgsf.remoting.guest.tensor import DEVICE_NAME

_MEMORY: dict[str, Any] = {
    "memory_stats": memory.stats,
    "memory_allocated": memory.allocated,
    "max_memory_allocated": memory.peak,
    "memory_reserved": memory.allocated,
    "max_memory_reserved": memory.peak,
    "get_memory_info": memory.free_and_total,
    "reset_peak_memory_stats": memory.forget_peak,
    "reset_accumulated_memory_stats": lambda: None,
    "empty_cache": lambda: None,
    "empty_host_cache": lambda: None,
}

_INDEX = "_get_device_index"


def install(stack: ExitStack) -> None:
    replace(stack, torch.accelerator, "synchronize", lambda device=None, /: MODULE.synchronize())
    for name, answer in _MEMORY.items():
        for owner in (torch.accelerator, torch.accelerator.memory):
            if hasattr(owner, name):
                replace(stack, owner, name, _of_device(answer))


def _of_device(answer: Any) -> Any:
    return lambda device_index=None, /: answer()


def say(stack: ExitStack, name: str) -> None:
    """The accelerator and the default device have the name that the program uses."""
    accelerator, default = torch.accelerator.current_accelerator, torch.get_default_device

    def current_accelerator(check_available: bool = False) -> torch.device | None:
        found = accelerator(check_available)
        return torch.device(name) if found is not None and found.type == DEVICE_NAME else found

    def get_default_device() -> torch.device:
        found = default()
        return torch.device(name, 0) if found.type == DEVICE_NAME else found

    index_of = getattr(torch.accelerator, _INDEX)

    def _get_device_index(device: Any, optional: bool = False) -> int:
        """Compilers ask by the device's own name."""
        known = isinstance(device, str | torch.device) and torch.device(device).type == DEVICE_NAME
        return int(index_of(torch.device(name, torch.device(device).index or 0) if known else device, optional))

    for owner in (torch.accelerator, torch.accelerator.memory):
        replace(stack, owner, _INDEX, _get_device_index)
    replace(stack, torch.accelerator, "current_accelerator", current_accelerator)
    replace(stack, torch, "get_default_device", get_default_device)
