"""From torch's argument values to the words of dgsf.remoting.protocol, for the definition of a kind of call."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import torch

from dgsf.errors import OpNotAllowed, UsageError
from dgsf.remoting.guest.kinds import Kind
from dgsf.remoting.guest.tensor import RemoteTensor
from dgsf.remoting.protocol import COMPLEX, DTYPES, FLOAT, LAYOUTS, MAX_LIST, MEMORY_FORMATS, TENSOR

DTYPE_CODE = {getattr(torch, name): code for code, name in enumerate(DTYPES) if hasattr(torch, name)}
LAYOUT_CODE = {getattr(torch, name): code for code, name in enumerate(LAYOUTS)}
FORMAT_CODE = {getattr(torch, name): code for code, name in enumerate(MEMORY_FORMATS)}


def default_code() -> int:
    """The default dtype of this process, as a kind of call tells it."""
    return DTYPE_CODE[torch.get_default_dtype()]


class Encoder:
    """Numbers the holes of one kind in the order in which `dispatch` gathers handles and floats."""

    def __init__(self, name: str, float_lists: bool, keyed_floats: bool) -> None:
        self.name = name
        self._float_lists = float_lists
        self._keyed = keyed_floats
        self._tensors = 0
        self._floats = 0

    def kind(self, args: Any, kwargs: dict[str, Any], outs: int) -> Kind:
        words = [self.value(value) for value in args]
        by_name = {name: self.value(value) for name, value in kwargs.items()}
        if self._tensors > MAX_LIST:
            told = f"{self.name} of {self._tensors} tensors is over the limit of {MAX_LIST} tensors in one operation"
            raise UsageError(f"{told}; do it in parts")
        return Kind(self.name, words, by_name, outs, default_code())

    def value(self, value: Any, listed: bool = False) -> Any:
        kind = type(value)
        if kind is RemoteTensor:
            self._tensors += 1
            return {TENSOR: self._tensors - 1}
        if kind is float:
            return self._float(value, listed)
        if kind in (int, bool, str, type(None)):
            return value
        if isinstance(value, list | tuple):
            return [self.value(item, listed=True) for item in value]
        return self._rare(value)

    def _float(self, value: float, listed: bool) -> Any:
        if self._keyed or (listed and not self._float_lists):
            return value
        self._floats += 1
        return {FLOAT: self._floats - 1}

    def _rare(self, value: Any) -> Any:
        if isinstance(value, complex):
            return {COMPLEX: [value.real, value.imag]}
        if isinstance(value, torch.dtype):
            return DTYPE_CODE[value]
        if isinstance(value, torch.layout):
            return LAYOUT_CODE[value]
        if isinstance(value, torch.memory_format):
            return FORMAT_CODE[value]
        if isinstance(value, torch.device):
            return None
        if isinstance(value, Integral):  # numpy's numbers; in no key that is kept, so that they are no holes
            return int(value)
        if isinstance(value, Real):
            return float(value)
        raise OpNotAllowed(f"{self.name} cannot be sent to a remote device: it takes a {type(value).__name__}")
