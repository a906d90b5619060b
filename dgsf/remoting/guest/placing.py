"""`torch.load` under the alias with a function that says where each storage goes, `lambda storage, _: storage.cuda(0)`.

There are no storages on the device, so such a function says it by a mark; the tensors of what it marked move when all
is loaded.  Outside of a load, `storage.cuda()` is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from dgsf.errors import OpNotAllowed
from dgsf.remoting.guest import one_device
from dgsf.remoting.guest import tensor as tensors
from dgsf.remoting.guest.moves import Mover
from dgsf.remoting.guest.replacing import replace
from dgsf.remoting.guest.storages import NO_STORAGE

_here = threading.local()  # `asking`: a function of this thread is being asked where a storage goes
_THERE = object()


def install(stack: ExitStack) -> None:
    for kind in (torch.UntypedStorage, torch.TypedStorage):
        replace(stack, kind, "cuda", _cuda)


def _cuda(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
    one_device.only(device, "cuda")
    if not getattr(_here, "asking", False):
        raise OpNotAllowed(NO_STORAGE)
    return _THERE


def by_function(load: Any, f: Any, places: Callable[[Any, str], Any], *args: Any, **kwargs: Any) -> Any:
    """What was loaded, with the tensors on the device that the function put there."""
    going: set[int] = set()

    def place(storage: Any, location: str) -> Any:
        _here.asking = True
        try:
            found = places(storage, location)
        finally:
            _here.asking = False
        if found is _THERE or (found is None and location.startswith("cuda")):
            going.add(storage._cdata)
            return storage
        return found

    loaded = load(f, place, *args, **kwargs)
    return Mover(tensors.DEVICE, going).value(loaded) if going else loaded
