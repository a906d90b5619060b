"""Calls done in this process on copies: what needs an object that cannot travel, such as a CPU generator."""

from __future__ import annotations

from typing import Any

import torch

from dgsf.remoting.guest.plans import Plan
from dgsf.remoting.guest.tensor import RemoteTensor
from dgsf.remoting.guest.transfer import download, upload

_CPU = torch.device("cpu")


def like_on_cpu(plan: Plan, args: Any, kwargs: Any) -> Any:
    """`zeros_like(x, device="cpu")` and its kin: only the metadata of the arguments counts."""

    def plain(value: Any) -> Any:
        if isinstance(value, RemoteTensor):
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=kwargs["device"])
        return value

    return plan.func(*[plain(value) for value in args], **{name: plain(value) for name, value in kwargs.items()})


def run(plan: Plan, args: Any, kwargs: Any) -> Any:
    """Download the tensors, do the call here, and bring results and changes back to the device."""
    copies: list[tuple[RemoteTensor, torch.Tensor]] = []

    def down(value: Any) -> Any:
        if isinstance(value, RemoteTensor):
            copy = download(value)
            copies.append((value, copy))
            return copy
        if isinstance(value, list | tuple):
            return [down(item) for item in value]
        return value

    local_kwargs = {name: down(value) for name, value in kwargs.items()}
    if plan.takes_device:
        local_kwargs["device"] = _CPU
    made = plan.func(*[down(value) for value in args], **local_kwargs)
    written = {id(place.get(args, kwargs)) for place in plan.written}
    for remote, copy in copies:
        if id(remote) in written:
            remote.copy_(copy)
    return _up(made, copies)


def _up(made: Any, copies: list[tuple[RemoteTensor, torch.Tensor]]) -> Any:
    if isinstance(made, torch.Tensor):
        for remote, copy in copies:
            if made is copy:
                return remote
        return upload(made)
    if isinstance(made, list | tuple):
        return type(made)([_up(item, copies) for item in made])
    return made
