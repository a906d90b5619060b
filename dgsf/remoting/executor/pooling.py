"""Max pooling over all channels of a place at once, where torch's CPU would go through them one by one.

Torch does that with vector instructions if channels lie next to each other in memory, and compares single numbers if
not.  So the input is turned, pooled, and the results are turned back: the same values and places bit for bit, also of
equals and of what is not a number, in a fraction of the time.  Small inputs and few channels are not worth turning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_FORMATS = {
    "aten::max_pool2d_with_indices": (4, torch.channels_last),
    "aten::max_pool3d_with_indices": (5, torch.channels_last_3d),
}
_CHANNELS = 16  # float32 in one instruction; beyond whole ones, torch finds other places where all is -inf
_ELEMENTS = 100_000


def by_channels(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel, or one that turns its input where that is worth it."""
    found = _FORMATS.get(name.removesuffix(".default"))
    if found is None:
        return kernel
    dims, turned = found

    def pool(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not (input.dim() == dims and _is_worth_it(input)):
            return kernel(input, *args, **kwargs)
        values, places = kernel(input.contiguous(memory_format=turned), *args, **kwargs)
        return values.contiguous(), places.contiguous()

    return pool


def _is_worth_it(input: Tensor) -> bool:
    return (
        input.dtype is torch.float32
        and input.shape[1] % _CHANNELS == 0
        and input.numel() >= _ELEMENTS
        and input.is_contiguous()
        and not input._is_zerotensor()
    )
