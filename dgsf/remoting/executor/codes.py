"""Between the numbers of dgsf.remoting.protocol and torch's own names: types, layouts, metadata, values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dgsf.errors import ProtocolError
from dgsf.remoting.protocol import COMPLEX, DTYPES, LAYOUTS, MEMORY_FORMATS, VALUE

_DTYPES = tuple(getattr(torch, name) for name in DTYPES)
_LAYOUTS = tuple(getattr(torch, name) for name in LAYOUTS)
_MEMORY_FORMATS = tuple(getattr(torch, name) for name in MEMORY_FORMATS)
_QUANTIZED = frozenset((torch.quint8, torch.qint8, torch.qint32))
DTYPE_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}


def _entry(table: tuple[Any, ...], code: Any, what: str) -> Any:
    if type(code) is not int or not 0 <= code < len(table):
        raise ProtocolError(f"{code!r} is not the code of a {what}")
    return table[code]


def dtype_of(code: Any) -> torch.dtype:
    dtype = _entry(_DTYPES, code, "dtype")
    if dtype in _QUANTIZED:
        raise ProtocolError(f"tensors of {dtype} cannot be held on a remote device")
    return dtype


def layout_of(code: Any) -> torch.layout:
    return _entry(_LAYOUTS, code, "layout")


def memory_format_of(code: Any) -> torch.memory_format:
    return _entry(_MEMORY_FORMATS, code, "memory format")


def meta_of(tensor: torch.Tensor) -> list[Any]:
    """A tensor's metadata as an answer tells it."""
    return [DTYPE_CODES[tensor.dtype], list(tensor.shape), list(tensor.stride()), tensor.storage_offset()]


def value_of(value: Any) -> dict[str, Any]:
    """A number (or a list of numbers) that an operator returned."""
    if isinstance(value, complex):
        return {VALUE: {COMPLEX: [value.real, value.imag]}}
    return {VALUE: value}


def sizes_of(value: Any) -> list[int]:
    """The sizes of a tensor as they came over the wire, checked."""
    if type(value) is not list or len(value) > 64:
        raise ProtocolError("a tensor's sizes are a list of at most 64 numbers")
    for size in value:
        if type(size) is not int or not 0 <= size < 1 << 48:
            raise ProtocolError(f"{size!r} is not the size of a dimension")
    return value


def span_bytes(dtype: torch.dtype, sizes: Sequence[int], strides: Sequence[int], offset: int) -> int:
    """How far into its storage a tensor reaches."""
    if not all(sizes):
        return 0
    reach = offset + 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    return int(reach * dtype.itemsize)


def count_of(sizes: list[int]) -> int:
    """How many elements that makes."""
    total = 1
    for size in sizes:
        total *= size
    return total
