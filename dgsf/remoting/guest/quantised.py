"""Quantised tensors cannot live on a remote device: whoever moves one there is told so in a sentence."""

from __future__ import annotations

from typing import Any, NoReturn

from dgsf.errors import OpNotAllowed
from dgsf.remoting.guest.failures import guarded

REFUSED = "quantised tensors cannot live on a remote device: move tensor.dequantize() there, or keep them on the CPU"
_MAKERS = ("empty.memory_format", "empty_strided", "empty_quantized", "_empty_affine_quantized",
           "_empty_per_channel_affine_quantized")  # fmt: skip


def refuse(*_: Any, **__: Any) -> NoReturn:
    raise OpNotAllowed(REFUSED)


def register(library: Any) -> None:
    """All that torch makes one with."""
    for name in _MAKERS:
        library.impl(name, guarded(refuse), "QuantizedPrivateUse1")
