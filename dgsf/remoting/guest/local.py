"""Calls done in this process on copies: what needs an object that cannot travel, or makes a tensor elsewhere."""

from __future__ import annotations

from typing import Any

import torch

from dgsf.remoting.guest.plans import Plan
from dgsf.remoting.guest.tensor import RemoteTensor
from dgsf.remoting.guest.transfer import download, upload

_CPU = torch.device("cpu")


def make_elsewhere(plan: Plan, args: Any, kwargs: Any) -> Any:
    """A tensor that is asked for on another device, made of remote ones: they are brought here.

    Not the one that it is only to be like, the first of `zeros_like`, `new_ones` and their kin: of that the metadata
    counts and not the values.
    """
    bare = plan.name.removeprefix("aten::").partition(".")[0]
    if bare.endswith("_like") or bare.startswith("new_"):
        args = (_placeholder(args[0], kwargs["device"]), *args[1:])
    return plan.func(*[_down(value) for value in args], **{name: _down(value) for name, value in kwargs.items()})


def _placeholder(tensor: Any, device: torch.device) -> Any:
    if not isinstance(tensor, RemoteTensor):
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)


def _down(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_down(item) for item in value]
    return download(value) if isinstance(value, RemoteTensor) else value


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
