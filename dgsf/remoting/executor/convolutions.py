"""Convolutions of volumes by oneDNN where torch's CPU would unfold the input and multiply, which takes much longer.

Torch decides by rules that were made for 2D images: alone in its batch, a volume takes several times as long as need
be.  Images are left to torch: little is gained there, and functions beside their device get the same bits.  The way of
a call follows from its sizes, layouts and attributes alone, so a replay on another CPU device gives the same bits, and
results have the sizes and strides that torch's own choice would give.  The limit was measured; it lies where putting
weights and activations into oneDNN's order costs more than its kernels gain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_NAMES = frozenset(("aten::convolution", "aten::convolution.default"))
_Backend = torch._C._ConvBackend
_UNFOLDING = (_Backend.Slow3d, _Backend.SlowDilated3d)
_VOLUME_WORK = 500_000  # multiplications in a convolution of volumes


def by_onednn(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel, or one that leaves to oneDNN what that does sooner."""
    if name not in _NAMES or not (torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled):
        return kernel
    onednn = torch.ops.aten.mkldnn_convolution.default._op

    def convolution(
        input: Tensor, weight: Tensor, bias: Tensor | None, stride: list[int], padding: list[int],
        dilation: list[int], transposed: bool, output_padding: list[int], groups: int,
    ) -> Any:  # fmt: skip
        if not transposed and groups == 1 and pays(input.shape, weight.shape, stride):
            rest = (stride, padding, dilation, transposed, output_padding, groups)
            if _are_plain(input, weight, bias) and _unfolds(input, weight, bias, rest):
                return onednn(input, weight, bias, padding, stride, dilation, groups)
        return kernel(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)

    return convolution


def pays(input: Sequence[int], weight: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether oneDNN takes less time than unfolding for volumes of these sizes."""
    if len(weight) != 5 or len(input) != 5 or len(stride) != 3:
        return False
    positions = input[0] * math.prod(input[2:]) // max(1, math.prod(stride))
    return math.prod(weight[2:]) > 1 and math.prod(weight) * positions >= _VOLUME_WORK


def _are_plain(*tensors: Tensor | None) -> bool:
    """Of float32 with values in memory as they are."""
    return all(
        each is None or (each.dtype is torch.float32 and each.layout is torch.strided and not each._is_zerotensor())
        for each in tensors
    )


def _unfolds(input: Tensor, weight: Tensor, bias: Tensor | None, rest: tuple[Any, ...]) -> bool:
    """Whether that is torch's choice, and both ways give a contiguous result.

    With channels last, oneDNN crashes over some inputs of width 1: what torch itself does not send there must not go.
    """
    try:
        choice = torch._C._select_conv_backend(input, weight, bias, *rest, None)
    except RuntimeError:
        return False  # no such convolution: torch's kernel says it in its own words
    layout = torch._C._conv_determine_backend_memory_format
    formats = [layout(input, weight, backend) for backend in (choice, _Backend.Mkldnn)]
    dilation = rest[2]  # which was not looked at
    return choice in _UNFOLDING and min(dilation) > 0 and all(each is torch.contiguous_format for each in formats)
