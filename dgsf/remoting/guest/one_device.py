"""What programs ask about devices, answered for the only remote one: its name, its properties, which it is.

The same answers are given under the device's own name (`backend`) and as cuda's (`cuda`).
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from dgsf.remoting.guest import memory

NAME = "DGSF remote device"
CAPABILITY = (8, 0)

# What the GPUs of this capability have in common; programs choose sizes of blocks by it.
_PROPERTIES: dict[str, Any] = {
    "major": CAPABILITY[0],
    "minor": CAPABILITY[1],
    "multi_processor_count": 1,
    "warp_size": 32,
    "max_threads_per_block": 1024,
    "max_threads_per_multi_processor": 2048,
    "regs_per_multiprocessor": 65536,
    "shared_memory_per_block": 48 << 10,
    "shared_memory_per_block_optin": 163 << 10,
    "shared_memory_per_multiprocessor": 164 << 10,
    "L2_cache_size": 40 << 20,
    "is_integrated": 0,
    "is_multi_gpu_board": 0,
    "pci_bus_id": 0,
    "pci_device_id": 0,
    "pci_domain_id": 0,
    "uuid": "",
    "gcnArchName": NAME,
}


def _properties() -> SimpleNamespace:
    return SimpleNamespace(name=NAME, total_memory=memory.lease(), **_PROPERTIES)


def only(device: Any, name: str) -> None:
    """Refuse any device but the first one of this name, which is the remote one."""
    kind, _, number = str(device).partition(":") if isinstance(device, str | torch.device) else (name, "", device)
    if kind != name:
        raise ValueError(f"expected a {name} device, but got {device}")
    if str(number or 0) != "0" and number != -1:  # -1: torch's word for "as it is"
        raise RuntimeError(f"there is only one remote device, {name}:0; {name}:{number} does not exist")


def of_device(answer: Callable[[], Any], name: str) -> Callable[..., Any]:
    """A function whose only argument of weight is the device."""

    def answered(device: Any = None, **_: Any) -> Any:
        only(device, name)
        return answer()

    return answered


def device_class(name: str) -> type:
    """What `with torch.cuda.device(0):` uses; a class, because torch asks whether something is one."""

    class Device:
        def __init__(self, device: Any = None) -> None:
            only(device, name)
            self.idx = 0

        def __enter__(self) -> None: ...

        def __exit__(self, *_: Any) -> None: ...

    return Device


def answers(name: str) -> dict[str, Any]:
    """The functions of a device module that are about a device of this name."""
    plain: dict[str, Callable[[], Any]] = {
        "set_device": lambda: None,
        "get_device_name": lambda: NAME,
        "get_device_capability": lambda: CAPABILITY,
        "get_device_properties": _properties,
        **memory.ANSWERS,
    }
    return {"device": device_class(name), **{each: of_device(answer, name) for each, answer in plain.items()}}
