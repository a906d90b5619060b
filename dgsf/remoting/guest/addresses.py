"""Whose memory a remote tensor is, told as torch tells it: by an address and by a storage.

Programs tell tied weights and views apart by `data_ptr()` and `untyped_storage()`, most of all before they save models.
The addresses are made up, one range for each memory that is asked for; nothing is ever read or written there.
A storage here knows where it is and how large it is, and has no bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from dgsf.remoting.guest.layout import Layout, reach_bytes

_ALIGNED = 512  # as addresses on a GPU are
_lock = threading.RLock()
_free = 1 << 46  # the next one: where no memory of this process is
NO_BYTES = "a remote tensor has no bytes in this process; use tensor.cpu() first"
NOT_SAVED = f"a storage of a remote device cannot be saved or copied: {NO_BYTES}"


class Memory(tuple[int, Layout]):
    """The memory that tensors share: the number and layout of the tensor that it was made for."""

    address = 0  # given to it when somebody asks
    reserved = 0  # bytes from there on

    def start(self, size: int) -> int:
        """Its address; memory that has grown is elsewhere, as torch's is."""
        with _lock:
            if size > self.reserved or not self.address:
                self.reserved = max(_ALIGNED, -(-size // _ALIGNED) * _ALIGNED)
                self.address = _reserve(self.reserved)
            return self.address


def _reserve(size: int) -> int:
    global _free
    address, _free = _free, _free + size
    return address


class RemoteStorage:
    """What `tensor.storage()` and `tensor.untyped_storage()` are: enough to tell memories apart."""

    def __init__(self, tensor: Any, memory: Memory, item: int) -> None:
        self._cdata = memory.start(_bytes(tensor, memory))  # torch's name of what tells two storages apart
        self._bytes = _bytes(tensor, memory)
        self._item = item
        self.device: torch.device = tensor.device
        self.is_cuda: bool = tensor.is_cuda

    def data_ptr(self) -> int:
        return self._cdata if self._bytes else 0

    def nbytes(self) -> int:
        return self._bytes

    def element_size(self) -> int:
        return self._item

    def size(self) -> int:
        return self._bytes // self._item

    __len__ = size

    def is_shared(self) -> bool:
        return True  # as on CUDA

    _is_shared = is_shared

    def share_memory_(self) -> RemoteStorage:
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(NOT_SAVED)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name}: {NO_BYTES}")


def data_ptr(tensor: Any, memory: Memory) -> int:
    """Where a tensor begins; 0 if it has no elements."""
    if not tensor.numel():
        return 0
    return memory.start(_bytes(tensor, memory)) + int(tensor.storage_offset()) * int(tensor.element_size())


def _bytes(tensor: Any, memory: Memory) -> int:
    """How large its memory is: as it was made, or as far as the tensor reaches if it was resized."""
    made_for = memory[1]
    whole = reach_bytes(made_for.dtype, made_for.size, made_for.stride)
    end = reach_bytes(tensor.dtype, tensor.shape, tensor.stride())
    return max(whole, int(tensor.storage_offset()) * int(tensor.element_size()) + end) if end else whole


def refusing(error: type[Exception], what: str) -> Callable[..., NoReturn]:
    """A method that would give away an address to read from."""

    def refuse(self: Any, *_: Any, **__: Any) -> NoReturn:
        raise error(f"{what}: {NO_BYTES}")

    return refuse
