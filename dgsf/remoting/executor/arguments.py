"""Arguments of a kind: from what DEFINE says to values that torch takes, with holes for tensors and floats.

What a plain value means (a number or the code of a dtype) is told by the operator's schema.  A hole inside a
list makes the list a hole; everything else is made once, when the kind is defined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dgsf.errors import OpNotAllowed, ProtocolError, RemoteOpError
from dgsf.remoting.executor.codes import count_of, dtype_of, layout_of, memory_format_of, sizes_of
from dgsf.remoting.protocol import COMPLEX, CONSTANT, FLOAT, MAX_LIST, TENSOR

MAX_CONSTANT_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class TensorHole:
    """The call's i-th handle."""

    index: int


@dataclass(frozen=True, slots=True)
class FloatHole:
    """The call's i-th float."""

    index: int


@dataclass(frozen=True, slots=True)
class ListHole:
    """A list with holes; `handles` if it is made of nothing but handles that follow each other: from, to."""

    items: tuple[Any, ...]
    handles: tuple[int, int] | None

    def fill(self, tensors: Sequence[Any], floats: Sequence[float]) -> list[Any]:
        if self.handles is not None:
            return list(tensors[self.handles[0] : self.handles[1]])
        return [_fill(item, tensors, floats) for item in self.items]


Hole = TensorHole | FloatHole | ListHole


def _fill(item: Any, tensors: Sequence[Any], floats: Sequence[float]) -> Any:
    if type(item) is TensorHole:
        return tensors[item.index]
    if type(item) is FloatHole:
        return floats[item.index]
    if type(item) is ListHole:
        return item.fill(tensors, floats)
    return item


class Reader:
    """Reads the arguments of one operator for one device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._special: dict[str, Callable[[Any], Any]] = {
            "ScalarType": dtype_of,
            "Layout": _strided,
            "MemoryFormat": memory_format_of,
            "Device": self._own_device,
            "Generator": _no_generator,
        }

    def read(self, value: Any, argument: Any) -> Any:
        """The value or hole of one argument of a schema."""
        if argument.name == "pin_memory":
            return None
        return self._read(value, argument.real_type)

    def missing(self, argument: Any) -> bool:
        """Whether an argument that was not given still needs a value: where to make a new tensor."""
        return self._device.type != "cpu" and str(argument.real_type) == "Optional[Device]"

    def _read(self, value: Any, kind: Any) -> Any:
        sort = kind.kind()
        if sort == "OptionalType":
            inner = kind.getElementType()
            if str(inner) == "Device":
                return None if self._device.type == "cpu" else self._device  # on the CPU torch's default will do
            return None if value is None else self._read(value, inner)
        if sort == "ListType" and isinstance(value, list):
            return self._list(value, kind.getElementType())
        special = self._special.get(str(kind))
        if special is not None:
            return special(value)
        return self._plain(value, str(kind))

    def _list(self, value: list[Any], element: Any) -> Any:
        if len(value) > MAX_LIST:
            raise ProtocolError(f"a list of {len(value)} arguments is over the limit of {MAX_LIST}")
        items = tuple(self._read(item, element) for item in value)
        if not any(isinstance(item, Hole) for item in items):
            return list(items)
        return ListHole(items, _run_of_handles(items))

    def _plain(self, value: Any, kind: str) -> Any:
        if isinstance(value, dict):
            return self._marked(value)
        if value is None and kind == "Tensor":
            raise RemoteOpError("Expected a proper Tensor but got None for an argument that is not optional")
        if isinstance(value, bytes):
            raise ProtocolError("bytes cannot be an argument")
        return value

    def _marked(self, value: dict[str, Any]) -> Any:
        if len(value) != 1:
            raise ProtocolError("a hole or constant is a map of one entry")
        [(mark, content)] = value.items()
        if mark in (TENSOR, FLOAT):
            if type(content) is not int or not 0 <= content < MAX_LIST:
                raise ProtocolError(f"{content!r} is not the number of a hole")
            return TensorHole(content) if mark == TENSOR else FloatHole(content)
        if mark == COMPLEX:
            real, imaginary = content
            return complex(real, imaginary)
        if mark == CONSTANT:
            return constant(content)
        raise ProtocolError(f"a map with {mark!r} is neither hole nor constant")

    def _own_device(self, _value: Any) -> torch.device:
        return self._device


def constant(content: Any) -> torch.Tensor:
    """A small CPU tensor that is part of a kind."""
    code, sizes, data = content
    dtype, sizes = dtype_of(code), sizes_of(sizes)
    if len(data) > MAX_CONSTANT_BYTES or len(data) != count_of(sizes) * dtype.itemsize:
        raise ProtocolError(f"a constant of {len(data)} bytes does not fit its sizes or is over {MAX_CONSTANT_BYTES}")
    if not data:
        return torch.empty(sizes, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(sizes)


def _run_of_handles(items: tuple[Any, ...]) -> tuple[int, int] | None:
    if not all(type(item) is TensorHole for item in items):
        return None
    first = items[0].index
    follows = all(item.index == first + place for place, item in enumerate(items))
    return (first, first + len(items)) if follows else None


def _strided(value: Any) -> torch.layout:
    if value is not None and layout_of(value) is not torch.strided:
        raise OpNotAllowed(f"tensors of layout {layout_of(value)} are not available on a remote device; use dense ones")
    return torch.strided


def _no_generator(value: Any) -> None:
    if value is not None:
        raise ProtocolError("a generator cannot be sent; the device has its own")
