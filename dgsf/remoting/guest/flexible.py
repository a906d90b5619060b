"""`flex_attention` on a remote device: done as torch does it without a compiler, in ordinary operations.

So `score_mod`, `block_mask`, grouped heads and gradients work; the matrix of scores is made whole, on the device.
"""

from __future__ import annotations

from contextlib import ExitStack
from importlib import import_module
from typing import Any

import torch

from dgsf.remoting.guest.autocast import lowering
from dgsf.remoting.guest.replacing import replace, standing_for
from dgsf.remoting.guest.tensor import DEVICE_NAME, RemoteTensor


def install(stack: ExitStack) -> None:
    """Within the module: programs import the function itself, early."""
    flex = import_module("torch.nn.attention.flex_attention")
    replace(stack, flex, "_validate_device", _of_any_device(flex._validate_device))
    replace(stack, flex, "flex_attention_hop", _attending(flex.flex_attention_hop))


def _of_any_device(original: Any) -> Any:
    def _validate_device(query: Any, key: Any, value: Any) -> None:
        if not isinstance(query, RemoteTensor):
            original(query, key, value)

    return standing_for(_validate_device, original)


def _attending(original: Any) -> Any:
    def attend(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(query, RemoteTensor):
            return original(query, key, value, *args, **kwargs)
        dense = import_module("torch._higher_order_ops.flex_attention").sdpa_dense
        attend_there = lowering(dense) if torch.is_autocast_enabled(DEVICE_NAME) else dense
        return attend_there(query, key, value, *args, **kwargs)

    return attend
