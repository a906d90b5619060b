"""`torch.load` of tensors that belong on the device: done as torch does it, storage by storage.

torch asks of each storage in a file where it belongs, and makes the tensors of it afterwards.  There are no storages
on a remote device; one that belongs there is marked.  Its bytes are sent when the first tensor of it is made, and every
tensor is cut out of those: what was tied stays tied, in whatever object it is.  The storages here are dropped
when all is loaded, so their memory is lent to the uploads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

import torch

from dgsf.remoting.guest import quantised
from dgsf.remoting.guest import tensor as tensors
from dgsf.remoting.guest.bound import bound
from dgsf.remoting.guest.cutting import cut, is_dense
from dgsf.remoting.guest.lending import Loans, lending
from dgsf.remoting.guest.replacing import replace, replace_item, standing_for
from dgsf.remoting.guest.tensor import DEVICE_NAME, RemoteTensor, refit

_here = threading.local()  # `load`: the one that is under way in this thread
_PRIORITY = 19  # asked before torch's own way for cuda
_MARK = "_dgsf_memory"


def install(stack: ExitStack) -> None:
    load = _loading(torch.load)
    replace(stack, torch, "load", load)
    replace(stack, torch.serialization, "load", load)
    allowed = import_module("torch._weights_only_unpickler")._get_allowed_globals()
    for name in ("_rebuild_tensor", "_rebuild_tensor_v3", "_rebuild_qtensor"):
        original = getattr(torch._utils, name)
        new = standing_for(globals()[name](original), original)
        replace(stack, torch._utils, name, new)
        replace_item(stack, allowed, f"torch._utils.{name}", new)
    replace(stack, torch._utils, "set_tensor_metadata", _set_tensor_metadata(torch._utils.set_tensor_metadata))
    torch.serialization.register_package(_PRIORITY, way := (lambda storage: None), _belongs_here)
    stack.callback(torch.serialization._package_registry.remove, (_PRIORITY, way, _belongs_here))


def mark(storage: Any) -> Any:
    """This storage belongs on the device: tensors of it are made there."""
    setattr(storage, _MARK, _Memory())
    return storage


def _belongs_here(storage: Any, location: Any) -> Any:
    """torch's question where a storage belongs; None: not here, or on a device that there is not, as torch will say."""
    kind, _, index = str(location).partition(":")
    ours = kind in (DEVICE_NAME, bound.name.partition(":")[0]) and index in ("", "0")
    return mark(storage) if ours else None


class _Memory:
    """The memory on the device of a marked storage; it is there once a tensor of it was made."""

    whole: Any = None

    def tensor(self, storage: Any, dtype: torch.dtype, size: Any, stride: Any, offset: int) -> Any:
        if self.whole is None:
            self.whole = _sent(_all_of(storage, dtype, size, stride, offset))
        return cut(self.whole, dtype, size, stride, offset)


def _all_of(storage: Any, dtype: torch.dtype, size: Any, stride: Any, offset: int) -> torch.Tensor:
    """All of a storage: as this tensor of it, if that is all of it."""
    local = torch.empty(0, dtype=dtype, device="cpu").set_(storage, offset, size, stride)
    if local.nbytes == storage.nbytes() and not offset and is_dense(local):
        return local
    if storage.nbytes() % dtype.itemsize:
        dtype = torch.uint8
    return torch.empty(0, dtype=dtype, device="cpu").set_(storage, 0, (storage.nbytes() // dtype.itemsize,), (1,))


def _sent(local: torch.Tensor) -> Any:
    load: _Load | None = getattr(_here, "load", None)
    if load is not None:
        return load.sent(local)
    return local.to(tensors.DEVICE)


class _Load:
    """One `torch.load`: what it sent, and what it has to send when the bytes were read."""

    def __init__(self, stack: ExitStack, is_mapped: bool) -> None:
        self._stack = stack
        self._is_mapped = is_mapped
        self._loans: Loans | None = None
        self._late: list[tuple[torch.Tensor, Any]] = []

    def sent(self, local: torch.Tensor) -> Any:
        if getattr(local.untyped_storage(), "_torch_load_uninitialized", False):
            new = torch.empty_like(local, device=tensors.DEVICE)
            self._late.append((local, new))
            return new
        self._lend(local)
        return local.to(tensors.DEVICE)

    def fill(self) -> None:
        """The oldest format has its bytes behind the objects."""
        for local, _ in self._late:
            self._lend(local)
        while self._late:
            local, new = self._late.pop()
            new.copy_(local)

    def _lend(self, local: torch.Tensor) -> None:
        if self._is_mapped:  # a file that may change
            return
        if self._loans is None:
            self._loans = self._stack.enter_context(lending())
        self._loans.offer(local, is_sure=True)


@contextmanager
def _under_way(mmap: bool | None) -> Iterator[None]:
    with ExitStack() as stack:
        stack.callback(setattr, _here, "load", getattr(_here, "load", None))
        usually = import_module("torch.utils.serialization").config.load.mmap
        _here.load = load = _Load(stack, usually if mmap is None else mmap)
        yield
        with torch.no_grad():
            load.fill()


def _loading(original: Any) -> Any:
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if _is_safetensors(f) and _is_remote(map_location):  # which asks torch nothing
            return {name: each.to(tensors.DEVICE) for name, each in original(f, "cpu", *args, **kwargs).items()}
        with _under_way(kwargs.get("mmap")):
            return original(f, map_location, *args, **kwargs)

    return standing_for(load, original)


def _is_safetensors(f: Any) -> bool:
    return isinstance(f, str | os.PathLike) and os.fspath(f).endswith(".safetensors")


def _is_remote(location: Any) -> bool:
    return isinstance(location, str | torch.device) and torch.device(location).type == DEVICE_NAME


def _memory_of(storage: Any) -> _Memory | None:
    return getattr(storage._untyped_storage, _MARK, None)


def _rebuild_tensor(original: Any) -> Any:
    """What most tensors in files are made with; attributes, gradients and classes are given to them afterwards."""

    def rebuild(storage: Any, storage_offset: int, size: Any, stride: Any) -> Any:
        memory = _memory_of(storage)
        if memory is None:
            return original(storage, storage_offset, size, stride)
        return memory.tensor(storage._untyped_storage, storage.dtype, size, stride, storage_offset)

    return rebuild


def _rebuild_tensor_v3(original: Any) -> Any:
    """The same for types that have no storages of their own."""

    def rebuild(storage: Any, *args: Any) -> Any:
        if _memory_of(storage) is None:
            return original(storage, *args)
        offset, size, stride, wants_grad, hooks, dtype, *metadata = args
        typed = torch.storage.TypedStorage(wrap_storage=storage._untyped_storage, dtype=dtype, _internal=True)
        return torch._utils._rebuild_tensor_v2(typed, offset, size, stride, wants_grad, hooks, *metadata)

    return rebuild


def _rebuild_qtensor(original: Any) -> Any:
    def rebuild(storage: Any, *args: Any) -> Any:
        return original(storage, *args) if _memory_of(storage) is None else quantised.refuse()

    return rebuild


def _set_tensor_metadata(original: Any) -> Any:
    """That a tensor is read conjugated or negated; the device's has to know it, too."""

    def set_tensor_metadata(tensor: Any, metadata: dict[str, Any]) -> None:
        if not isinstance(tensor, RemoteTensor):
            original(tensor, metadata)
            return
        with torch.no_grad():
            turned = tensor.detach()
            turned = torch._conj(turned) if metadata.get("conj") else turned
            turned = torch._neg_view(turned) if metadata.get("neg") else turned
        refit(tensor, turned._m, turned.storage_offset(), turned._h)

    return standing_for(set_tensor_metadata, original)
