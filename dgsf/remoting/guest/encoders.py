"""`nn.TransformerEncoder` on a remote device: what torch's nested fast path gives, without nested tensors.

On the CPU and on CUDA an encoder that only infers packs its input by the mask of padding, and fills zeros in behind its
last layer.  Nested tensors cannot live on the device, so the layers here go over padding, too, which changes no other
row, and the zeros follow.  Whether a mask is one that torch would pack by is decided on the device: nothing waits.
"""

from __future__ import annotations

from contextlib import ExitStack
from importlib import import_module
from typing import Any

import torch

from dgsf.remoting.guest.replacing import replace, standing_for
from dgsf.remoting.guest.tensor import RemoteTensor

_OF_THE_LAYER = (
    "self_attn.in_proj_weight", "self_attn.in_proj_bias", "self_attn.out_proj.weight", "self_attn.out_proj.bias",
    "norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias", "linear1.weight", "linear1.bias", "linear2.weight",
    "linear2.bias",
)  # fmt: skip


def install(stack: ExitStack) -> None:
    replace(stack, torch.nn.TransformerEncoder, "forward", _filling(torch.nn.TransformerEncoder.forward))
    scripts = import_module("torch.jit._recursive")
    compiled = scripts.make_stub

    def make_stub(function: Any, name: str) -> Any:
        """TorchScript compiles what torch has written."""
        return compiled(getattr(function, "_dgsf_original", function), name)

    replace(stack, scripts, "make_stub", make_stub)


def _filling(original: Any) -> Any:
    def forward(
        self: Any, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: Any = None
    ) -> Any:  # fmt: skip
        padding = src_key_padding_mask
        if not isinstance(src, RemoteTensor) or not _may_pack(self, src, padding):
            return original(self, src, mask, padding, is_causal)
        if mask is not None or _learns(self, src) or torch.is_autocast_enabled():
            return original(_like(self, self.norm), src, mask, padding, is_causal)
        packed, padding = _as_packed(padding, src.dtype, getattr(self, "mask_check", True))
        output = original(_like(self, None), src, None, padding, is_causal).masked_fill(packed.unsqueeze(-1), 0.0)
        return output if self.norm is None else self.norm(output)

    return standing_for(forward, original)


def is_left_aligned(keep: torch.Tensor) -> torch.Tensor:
    """Whether in each row of a mask all that is kept comes first, as a value on the device."""
    return (keep == _first(keep)).all()


def _first(keep: torch.Tensor) -> torch.Tensor:
    """As many as the mask keeps in each row, but the first ones."""
    return torch.arange(keep.shape[1], device=keep.device) < keep.sum(1, keepdim=True)


def _may_pack(encoder: Any, src: Any, padding: Any) -> bool:
    """Whether torch would look at the mask at all; a wrong one is refused by the layers."""
    if not torch.backends.mha.get_fastpath_enabled() or not getattr(encoder, "use_nested_tensor", False):
        return False
    if padding is None or encoder.layers[0].training or src.dim() != 3 or padding.shape != src.shape[:2]:
        return False
    return isinstance(padding, RemoteTensor) and (padding.dtype is torch.bool or padding.is_floating_point())


def _learns(encoder: Any, src: Any) -> bool:
    layer = encoder.layers[0]
    return torch.is_grad_enabled() and (
        src.requires_grad or any(layer.get_parameter(name).requires_grad for name in _OF_THE_LAYER)
    )


def _like(encoder: Any, norm: Any) -> Any:
    """The same encoder with another norm at its end, that does not think of packing."""
    new = object.__new__(type(encoder))
    new.__dict__.update(encoder.__dict__, use_nested_tensor=False, _modules={**encoder._modules, "norm": norm})
    return new


def _as_packed(padding: Any, dtype: torch.dtype, check: bool) -> tuple[Any, Any]:
    """What to fill with zeros, and the mask for the layers.

    Torch packs by how many rows are kept.  Unchecked, that is done with any mask; else only with a left-aligned one.
    Packed, a mask of numbers has none but all or nothing.
    """
    keep = padding.logical_not()
    behind = _first(keep).logical_not()
    if not check:
        return behind, behind
    aligned = is_left_aligned(keep)
    if padding.dtype is not torch.bool:
        whole = torch.zeros_like(padding, dtype=dtype).masked_fill(behind, float("-inf"))
        padding = torch.where(aligned, whole, padding)
    return behind & aligned, padding
