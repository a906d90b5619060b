"""Memory that its owner is about to give up is lent to uploads, which then need no copy of it.

When a module moves to the device, its tensors here are dropped as soon as they are sent; afterwards a tensor that
nobody else holds stays as it is.  The hashes of all of them are taken ahead, by as many threads as there are
processors.  Another thread that writes meanwhile is noticed by the tensor's version: what it wrote to is not lent.  A
write that comes later still makes the bytes another content than was named, which the device refuses.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from dgsf.remoting.digest import digest_of
from dgsf.remoting.protocol import INLINE_BYTES

MAX_THREADS = 4
_holders = torch._C._storage_Use_Count
_current: list[Loans] = []


Region = tuple[int, int, int]


class _Offer(NamedTuple):
    """A tensor's hash; the storage may be gone, but no other one gets its name meanwhile."""

    storage: StorageWeakRef
    writes: torch.Tensor | None  # counts them; None: it cannot be written to
    version: int  # when its hash was begun
    digest: Future[bytes]


class Loans:
    """The tensors of one move, and who was given their bytes."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads
        self._offers: dict[Region, _Offer] = {}
        self.borrowers: set[Any] = set()

    def offer(self, tensor: torch.Tensor, is_sure: bool = False) -> None:
        """Its owner will give it up before the move is over; is_sure: it is plain, even if torch does not say so."""
        region = _region(tensor)
        if region is not None and region not in self._offers and (is_sure or is_plain(tensor)):
            storage, writes = StorageWeakRef(tensor.untyped_storage()), _writes_of(tensor)
            self._offers[region] = _Offer(storage, writes, _version(writes), self._hashed(tensor))

    def _hashed(self, tensor: torch.Tensor) -> Future[bytes]:
        """In another thread, or here if there is no memory for one."""
        try:
            return self._threads.submit(_digest, tensor)
        except RuntimeError:
            done: Future[bytes] = Future()
            done.set_result(_digest(tensor))
            return done

    def digest_of(self, tensor: torch.Tensor) -> bytes | None:
        """The hash of a tensor whose bytes may be used as they are; None if they may not."""
        region = _region(tensor)
        found = self._offers.get(region) if region is not None else None
        if found is None:
            return None
        digest = found.digest.result()
        return digest if _version(found.writes) == found.version else None

    def settle(self) -> None:
        for borrower in self.borrowers:
            borrower.settle()


@contextmanager
def lending(tensors: Iterable[torch.Tensor] = ()) -> Iterator[Loans]:
    """Inside, uploads of these tensors borrow their memory; at the end they copy what others still hold."""
    with ExitStack() as stack:
        loans = Loans(threads := ThreadPoolExecutor(min(MAX_THREADS, len(os.sched_getaffinity(0))), "dgsf-hash"))
        for tensor in tensors:
            loans.offer(tensor)
            del tensor
        del tensors  # nobody is to hold them on our account
        stack.callback(loans.settle)  # a move that failed in the middle has left some with their owner
        stack.enter_context(threads)
        _current.append(loans)
        stack.callback(_current.remove, loans)
        yield loans


def current() -> Loans | None:
    return _current[-1] if _current else None


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether its memory is torch's own: no array, file or other process can change it behind our back."""
    storage = tensor.untyped_storage()
    return bool(storage.resizable() and not storage.is_shared())


def is_held(tensor: torch.Tensor) -> bool:
    """Whether anybody but its borrower can still reach a borrowed tensor's memory."""
    return bool(_holders(tensor.untyped_storage()._cdata) > _ALONE)


def memory_of(tensor: torch.Tensor) -> memoryview:
    """Its bytes, as they are; keeps it alive."""
    return memoryview(tensor.detach().view(-1).view(torch.uint8).numpy())


def _region(tensor: torch.Tensor) -> Region | None:
    """Where its bytes are, if they are worth it: an address alone may be another tensor's a moment later."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or not tensor.is_contiguous():
        return None
    size = tensor.numel() * tensor.element_size()
    return (tensor.untyped_storage()._cdata, tensor.data_ptr(), size) if size >= INLINE_BYTES else None


def _writes_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """A tensor that shares the count of writes, and no memory; what uploads see of this one has a count of its own."""
    if tensor.is_inference():
        return None
    counter = tensor.detach()
    counter.data = tensor.new_empty(0)
    return counter


def _version(writes: torch.Tensor | None) -> int:
    return 0 if writes is None else writes._version


def _digest(tensor: torch.Tensor) -> bytes:
    return digest_of(_raw(tensor))


def _raw(tensor: torch.Tensor) -> Any:
    """Its bytes for the time of a call; torch is not told, so that the tensor stays plain."""
    size = tensor.numel() * tensor.element_size()
    return memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())).cast("B")


def _alone() -> int:
    """How many hold the memory of a tensor that only a borrower holds."""
    tensor = torch.empty(1)
    held = tensor.detach()
    lent = memory_of(held)
    del tensor
    count: int = _holders(held.untyped_storage()._cdata)
    lent.release()
    return count


_ALONE = _alone()
