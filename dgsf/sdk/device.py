"""`dgsf.device()`: the device of the code that asks, whether it runs near or over the fabric.

torch is loaded only here, and the guest never: where a remote device is bound, it is loaded already.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

from dgsf.errors import UsageError

if TYPE_CHECKING:
    import torch


def device() -> torch.device:
    """The remote device where one is attached, as the program calls it; else the GPU beside this process or its CPU."""
    if importlib.util.find_spec("torch") is None:
        raise UsageError("dgsf.device needs torch in this program: pip install 'dgsf[torch]'")
    import torch

    guest = sys.modules.get("dgsf.remoting.guest.bound")
    if guest is not None and guest.bound.stream is not None:
        return torch.device(guest.bound.name)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
