"""Storages: a remote device has none in this process, and torch ends the process that asks it to make one.

Nor is memory of it lent to other libraries, which would read at an address that is none.

Storages of all other devices are made as before; those that torch makes by itself do not come this way at all.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch

from dgsf.errors import OpNotAllowed
from dgsf.remoting.guest.addresses import NOT_SAVED, RemoteStorage
from dgsf.remoting.guest.replacing import replace, standing_for
from dgsf.remoting.guest.tensor import DEVICE_NAME, RemoteTensor

NO_STORAGE = "a remote device has no storages in this process; make a tensor there: torch.empty(..., device=...)"


def refuse_remote() -> None:
    """From now on, whoever asks for a storage on the remote device is told so."""
    original: Any = torch.UntypedStorage.__new__

    def __new__(cls: Any, *args: Any, device: Any = None, **more: Any) -> Any:
        if device is None:
            return original(cls, *args, **more)
        if torch.device(device).type == DEVICE_NAME:
            raise OpNotAllowed(NO_STORAGE)
        return original(cls, *args, device=device, **more)

    torch.UntypedStorage.__new__ = __new__


def install(stack: ExitStack) -> None:
    """`to_dlpack`, which does not ask a tensor's class, and those that know storages by torch's own classes."""
    lend, is_torchs, class_saved = torch.to_dlpack, torch.is_storage, torch.serialization.normalize_storage_type

    def to_dlpack(tensor: Any) -> Any:
        return tensor.__dlpack__() if isinstance(tensor, RemoteTensor) else lend(tensor)

    def is_storage(obj: Any, /) -> bool:
        return isinstance(obj, RemoteStorage) or is_torchs(obj)

    def normalize_storage_type(kind: Any) -> Any:
        if kind is RemoteStorage:
            raise TypeError(NOT_SAVED)
        return class_saved(kind)

    for owner in (torch, torch.utils.dlpack):
        replace(stack, owner, "to_dlpack", standing_for(to_dlpack, lend))
    replace(stack, torch, "is_storage", standing_for(is_storage, is_torchs))
    replace(stack, torch.serialization, "normalize_storage_type", standing_for(normalize_storage_type, class_saved))
