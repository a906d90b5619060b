"""What travels between programs as a pickle: cloudpickle, but for the one thing that not every program knows.

A remote device's name is known only where it was registered, which a program that only calls functions should not have
to do.  So it travels as what it stands for: the remote device where there is one, the CPU elsewhere, as the values of
remote tensors do.
"""

from __future__ import annotations

import io
import sys
from collections import ChainMap
from functools import cache
from typing import Any, ClassVar

_NAME = "dgsf"


def dumps(value: Any) -> bytes:
    """The bytes of a value; whatever cloudpickle raises if it cannot travel."""
    import cloudpickle

    if "torch" not in sys.modules:  # then there is no device in it
        data: bytes = cloudpickle.dumps(value)
        return data
    file = io.BytesIO()
    _pickler()(file).dump(value)
    return file.getvalue()


@cache
def _pickler() -> Any:
    import cloudpickle
    import torch

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        dispatch_table: ClassVar = ChainMap({torch.device: _reduced}, cloudpickle.Pickler.dispatch_table)

    return Pickler


def _reduced(device: Any) -> Any:
    return (opened, (device.index,)) if device.type == _NAME else device.__reduce__()


def opened(index: int | None) -> Any:
    """The remote device if this program knows it, else the CPU."""
    import torch

    try:
        return torch.device(_NAME) if index is None else torch.device(_NAME, index)
    except RuntimeError:
        return torch.device("cpu")
