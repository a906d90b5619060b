"""Layouts: a tensor's type, sizes, strides and lazy bits, interned so that equal ones are one object.

A layout is compared by identity, which makes the keys of the shape cache cheap.  The storage offset is no part of
it: results do not depend on where in its storage an argument begins, and views know their own distance from it.
The bits are torch's own for views that read their memory conjugated or negated: the device's tensor has the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import torch

ON_COMPLEX: list[Callable[[], None]] = []  # told when a layout of complex numbers is met


CONJUGATED, NEGATED = 1, 2  # lazy bits


def bits_of(tensor: torch.Tensor) -> int:
    return CONJUGATED * bool(tensor.is_conj()) + NEGATED * bool(tensor.is_neg())


def set_bits(tensor: torch.Tensor, bits: int) -> None:
    """Let torch know that a tensor is read conjugated or negated; its memory stays as it is."""
    if tensor.is_conj() != bool(bits & CONJUGATED):
        torch._C._set_conj(tensor, bool(bits & CONJUGATED))
    if tensor.is_neg() != bool(bits & NEGATED):
        torch._C._set_neg(tensor, bool(bits & NEGATED))


class Layout:
    """Type, sizes, strides and bits of a tensor; there is only one object of each."""

    __slots__ = ("__weakref__", "bits", "dtype", "empty", "size", "stride")

    def __init__(self, dtype: torch.dtype, size: torch.Size, stride: tuple[int, ...], bits: int = 0) -> None:
        self.bits = bits
        self.dtype = dtype
        self.size = size
        self.stride = stride
        self.empty: Any = None  # the kind of call that makes such a tensor, once it was needed

    def __repr__(self) -> str:
        return f"Layout({self.dtype}, {tuple(self.size)}, {self.stride}, {self.bits})"


def reach_bytes(dtype: torch.dtype, size: Sequence[int], stride: Sequence[int]) -> int:
    """How much memory such a tensor reaches over."""
    if 0 in size:
        return 0
    steps = sum((width - 1) * step for width, step in zip(size, stride, strict=True))
    return int(dtype.itemsize) * (1 + steps)


class Table:
    """The layouts of one session; those of another one never equal them, so its tensors cannot be mixed in."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[Any, Layout] = WeakValueDictionary()  # as long as somebody has it
        self.kinds: dict[Any, Any] = {}  # of calls that the guest makes by itself

    def of(self, dtype: torch.dtype, size: Any, stride: Any, bits: int = 0) -> Layout:
        key = (dtype, tuple(size), tuple(stride), bits)
        found = self._known.get(key)
        if found is None:
            if dtype.is_complex:
                for tell in ON_COMPLEX:
                    tell()
            found = self._known.setdefault(key, Layout(dtype, torch.Size(key[1]), key[2], bits))
        return found

    def like(self, tensor: torch.Tensor) -> Layout:
        return self.of(tensor.dtype, tensor.shape, tensor.stride(), bits_of(tensor))


# What a tensor carries whose memory was not asked for yet: in no key of the cache, so it always takes the slow way.
PENDING = Layout(torch.float32, torch.Size(()), ())
