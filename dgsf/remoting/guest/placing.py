"""`torch.load` under the alias with a function that says where each storage goes, `lambda storage, _: storage.cuda(0)`.

There are no storages on the device, so such a function marks those whose tensors are made there.  Outside of a load,
`storage.cuda()` is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from dgsf.errors import OpNotAllowed
from dgsf.remoting.guest import loads, one_device
from dgsf.remoting.guest.replacing import replace
from dgsf.remoting.guest.storages import NO_STORAGE

_here = threading.local()  # `asking`: a function of this thread is being asked where a storage goes


def install(stack: ExitStack) -> None:
    for kind in (torch.UntypedStorage, torch.TypedStorage):
        replace(stack, kind, "cuda", _cuda)


def _cuda(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
    one_device.only(device, "cuda")
    if not getattr(_here, "asking", False):
        raise OpNotAllowed(NO_STORAGE)
    return loads.mark(self)


def heard(places: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """The function, whose `storage.cuda()` is understood."""

    def place(storage: Any, location: str) -> Any:
        _here.asking = True
        try:
            return places(storage, location)
        finally:
            _here.asking = False

    return place
