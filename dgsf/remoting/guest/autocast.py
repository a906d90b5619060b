"""Automatic mixed precision on the remote device: casts before the operators that torch casts for on CUDA.

The casts are operations of their own, so autograd sees them as it does elsewhere.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from dgsf.remoting.guest.failures import guarded

aten = torch.ops.aten
_NAME = "dgsf"
_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)

LOWER = (
    "conv1d", "conv1d.padding", "conv2d", "conv2d.padding", "conv3d", "conv3d.padding", "conv_tbc",
    "conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input", "convolution", "prelu", "addmm",
    "addmv", "addr", "matmul", "einsum", "mm", "mv", "linalg_vecdot", "linear", "addbmm", "baddbmm", "bmm",
    "chain_matmul", "linalg_multi_dot", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "lstm.input",
    "lstm.data", "gru.input", "gru.data", "rnn_tanh.input", "rnn_tanh.data", "rnn_relu.input", "rnn_relu.data",
    "scaled_dot_product_attention", "_scaled_dot_product_flash_attention", "_convolution", "_convolution.deprecated",
    "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell",
)  # fmt: skip

FULL = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt",
    "sinh", "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm",
    "native_layer_norm", "group_norm", "norm.Scalar", "norm.ScalarOpt_dim", "nuclear_norm", "nuclear_norm.dim",
    "cosine_similarity", "poisson_nll_loss", "cosine_embedding_loss", "nll_loss", "nll_loss2d",
    "hinge_embedding_loss", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss", "margin_ranking_loss",
    "multilabel_margin_loss", "soft_margin_loss", "triplet_margin_loss", "multi_margin_loss",
    "binary_cross_entropy_with_logits", "cross_entropy_loss", "dist", "pdist", "cdist", "renorm", "logsumexp",
    "prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum", "linalg_vector_norm",
    "linalg_matrix_norm", "linalg_matrix_norm.str_ord", "sum", "sum.dim_IntList", "rms_norm", "frobenius_norm.dim",
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d",
    "_upsample_bilinear2d_aa", "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bicubic2d_aa",
)  # fmt: skip

WIDEST = [
    "addcdiv",
    "addcmul",
    "atan2",
    "bilinear",
    "cross",
    "dot",
    "vdot",
    "grid_sampler",
    "index_put",
    "tensordot",
    "scatter_add",
]

_BANNED = (
    "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
    "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
    "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
    "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
    "safe to autocast."
)  # torch's own words


def _castable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype is not torch.float64


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if _castable(value):
        return value.to(dtype) if value.dtype is not dtype and value.device.type != "cpu" else value
    if isinstance(value, list | tuple):
        return [_cast(item, dtype) for item in value]
    return value


def _kernel(func: Any, choose: Any) -> Any:
    def cast(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            dtype = choose((*args, *kwargs.values()))
            return func(*[_cast(value, dtype) for value in args], **{n: _cast(v, dtype) for n, v in kwargs.items()})

    return cast


def _lower(values: Any) -> torch.dtype:
    return torch.get_autocast_dtype(_NAME)


def _full(values: Any) -> torch.dtype:
    return torch.float32


def _widest(values: Any) -> torch.dtype:
    """float32 as soon as one of them is, else the lower one."""
    for value in values:
        for item in value if isinstance(value, list | tuple) else [value]:
            if _castable(item) and item.dtype is torch.float32:
                return torch.float32
    return _lower(values)


def _banned(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError(_BANNED)


def lowering(func: Any) -> Any:
    """A call of `func` as it is done under autocast for those that are cast to the lower type."""
    return _kernel(func, _lower)


def register(library: Any) -> None:
    for names, choose in ((LOWER, _lower), (FULL, _full), (WIDEST, _widest)):
        for name in names:
            bare, _, overload = name.partition(".")
            func = getattr(getattr(aten, bare), overload or "default")
            library.impl(name, _kernel(func, choose), "AutocastPrivateUse1")
    library.impl("binary_cross_entropy", guarded(_banned), "AutocastPrivateUse1")
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    _kept.append(everything)


_kept: list[Any] = []
