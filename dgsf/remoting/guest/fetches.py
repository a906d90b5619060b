"""Bytes and metadata from the wire become torch's own: tensors, dtypes, values."""

from __future__ import annotations

from typing import Any

import torch

from dgsf.errors import ProtocolError
from dgsf.remoting.guest.kinds import Meta
from dgsf.remoting.protocol import COMPLEX, DTYPES, VALUE

TORCH_DTYPES: tuple[torch.dtype | None, ...] = tuple(getattr(torch, name, None) for name in DTYPES)
DTYPE_CODES: dict[torch.dtype, int] = {
    dtype: code for code, dtype in enumerate(TORCH_DTYPES) if isinstance(dtype, torch.dtype)
}
Result = Meta | float | int | bool | complex | None


def bulk_size(content: Any) -> int:
    """Of the answer to a FETCH: bytes that follow in bulk frames."""
    return 0 if len(content) > 3 else int(content[2])


def tensor_of(content: Any, bulk: memoryview | None) -> torch.Tensor:
    """The fetched tensor; owns its memory."""
    code, sizes, size = content[:3]
    data = bulk if bulk is not None else (bytearray(content[3]) if len(content) > 3 else b"")
    dtype = dtype_of(code)
    if len(data) != size:
        raise ProtocolError(f"a tensor of {size} bytes came with {len(data)}")
    if not size:
        return torch.empty(sizes, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype).reshape(sizes)


def dtype_of(code: int) -> torch.dtype:
    dtype = TORCH_DTYPES[code] if 0 <= code < len(TORCH_DTYPES) else None
    if not isinstance(dtype, torch.dtype):
        raise ProtocolError(f"unknown dtype {code}")
    return dtype


def meta_of(content: Any) -> Meta:
    code, sizes, strides, offset = content
    return dtype_of(code), tuple(sizes), tuple(strides), int(offset)


def result_of(content: Any) -> Result:
    """One result of an ASK: a tensor's metadata, a value, or None."""
    if content is None or isinstance(content, int | float | bool):
        return content
    if isinstance(content, dict):
        value = content[VALUE]
        return complex(*value[COMPLEX]) if isinstance(value, dict) else value
    return meta_of(content)
