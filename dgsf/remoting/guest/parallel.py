"""`nn.DataParallel` and its kin over the one remote device that there is: the module itself, on the whole batch.

Torch has the parts of it that scatter, broadcast and gather for its own devices only.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from importlib import import_module
from typing import Any

import torch

from dgsf.remoting.guest import tensor as tensors
from dgsf.remoting.guest.bound import bound
from dgsf.remoting.guest.replacing import replace
from dgsf.remoting.guest.tensor import DEVICE_NAME


def install(stack: ExitStack) -> None:
    parts = import_module("torch.nn.parallel.scatter_gather")
    replace(stack, parts, "Scatter", _Instead(parts.Scatter, _scatter))
    replace(stack, parts, "Gather", _Instead(parts.Gather, _gather))
    copies = import_module("torch.nn.parallel.replicate")
    name = "_broadcast_coalesced_reshape"
    replace(stack, copies, name, _ours_or(getattr(copies, name), _broadcast))


class _Instead:
    """Has `apply`, as the autograd function of torch that it stands for."""

    def __init__(self, original: Any, ours: Any) -> None:
        self.apply = _ours_or(original.apply, ours)


def _ours_or(original: Any, ours: Any) -> Any:
    """A machine may have GPUs of its own, which torch then prefers for these."""

    def chosen(*args: Any, **kwargs: Any) -> Any:
        kind = import_module("torch._utils")._get_available_device_type()
        return (ours if kind in (DEVICE_NAME, bound.name.partition(":")[0]) else original)(*args, **kwargs)

    return chosen


def _scatter(devices: Sequence[Any], chunk_sizes: Any, dim: int, batch: torch.Tensor) -> tuple[torch.Tensor]:
    _only(devices)
    return (batch.to(tensors.DEVICE),)


def _gather(device: Any, dim: int, *parts: torch.Tensor) -> torch.Tensor:
    whole = parts[0] if len(parts) == 1 else torch.cat(parts, dim)
    return whole.cpu() if device in (-1, "cpu", torch.device("cpu")) else whole


def _broadcast(
    shared: Sequence[torch.Tensor], devices: Sequence[Any], detach: bool = False
) -> list[list[torch.Tensor]]:
    _only(devices)
    return [[each.detach() if detach else each.view_as(each) for each in shared]] if shared else []


def _only(devices: Sequence[Any]) -> None:
    numbers = [device.index if isinstance(device, torch.device) else device for device in devices]
    if numbers not in ([0], [None]):
        raise RuntimeError(f"there is only one remote device, {bound.name}; device_ids={numbers} are not there")
