"""Operators that torch would take apart before they reach the device, and that are sent whole instead.

`linear` and `matmul` have derivatives in torch that are used as soon as a backend has a kernel for them: one call
forward, few backward, instead of a chain of views around one multiplication.  Attention is one call each way.
Their derivatives are called with no gradient at all (None) behind a function that stops it: then they have none either.
Composite operators with `out=` are sent whole because their parts write into results of other sizes.
"""

from __future__ import annotations

from typing import Any

import torch

from dgsf.remoting.guest import derivatives, rnn
from dgsf.remoting.guest.dispatch import dispatch, send
from dgsf.remoting.guest.layout import ON_COMPLEX
from dgsf.remoting.guest.plans import DISTRUSTED, SPECIALS, Plan, plan_of

aten = torch.ops.aten
_matmul: list[Any] = []  # its registration, until complex numbers are met

# Metadata that meta kernels get wrong, or that depends on the device's own choice of kernel.
DISTRUSTED.update((
    "scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu", "native_batch_norm", "batch_norm",
    "lstm", "gru", "rnn_tanh", "rnn_relu", "_native_batch_norm_legit", "_native_batch_norm_legit_functional",
    "_batch_norm_impl_index", "_batch_norm_with_update", "_embedding_bag", "_embedding_bag_forward_only",
    "_linalg_svd", "linalg_svd", "svd", "linalg_eig", "linalg_eigvals", "_fft_r2c", "_fft_c2r", "_fft_c2c",
    "mkldnn_rnn_layer", "mkldnn_rnn_layer_backward", "max_unpool2d", "max_unpool3d", "nonzero_static", "_linalg_det",
    "_linalg_slogdet", "_linalg_solve_ex", "_transformer_encoder_layer_fwd", "_native_multi_head_attention",
    "linalg_lstsq", "_linalg_eigh", "linalg_qr", "ldexp", "multi_margin_loss", "multilabel_margin_loss_forward",
))  # fmt: skip


def attention_backward(plan: Plan, args: Any, kwargs: Any) -> Any:
    """The three gradients of attention."""
    return (None, None, None) if args[0] is None else send(plan, args, kwargs)


def attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, *,
    scale: Any = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Scaled dot product attention: whole without gradients, by torch's flash kernel with them."""
    wanted = torch.is_grad_enabled() and any(
        part is not None and part.requires_grad for part in (query, key, value, attn_mask)
    )
    if not wanted and not derivatives.watched():
        named = {} if scale is None else {"scale": scale}
        if enable_gqa:
            named["enable_gqa"] = True
        args = (query, key, value, attn_mask, float(dropout_p), is_causal)
        return dispatch(aten.scaled_dot_product_attention.default, args, named)
    if not derivatives.forward_mode() and _flash(query, key, value, attn_mask, dropout_p, enable_gqa):
        mask = _additive(attn_mask, query.dtype)
        flash = aten._scaled_dot_product_flash_attention_for_cpu.default
        return flash(query, key, value, 0.0, is_causal, attn_mask=mask, scale=scale)[0]
    math = aten._scaled_dot_product_attention_math.default
    mask = _additive(attn_mask, query.dtype)
    return math(query, key, value, mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa)[0]


def _flash(query: Any, key: Any, value: Any, mask: Any, dropout: float, gqa: bool) -> bool:
    """Whether the flash kernel takes this: four dimensions, equal heads and widths, no dropout, a plain mask."""
    if dropout or gqa or query.dim() != 4 or key.shape != value.shape or query.shape[:2] != key.shape[:2]:
        return False
    if query.shape[3] != key.shape[3] or not query.numel() or not key.numel():
        return False
    if mask is not None and (mask.requires_grad or mask.dim() not in (2, 4)):
        return False
    return all(part.stride(3) == 1 for part in (query, key, value)) and query.dtype in _FLASH_TYPES


_FLASH_TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def _additive(mask: Any, dtype: torch.dtype) -> Any:
    if mask is None or mask.dtype is not torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask.logical_not(), float("-inf"))


def ctc_loss(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: int = 1,
    zero_infinity: bool = False,
) -> Any:  # fmt: skip
    """Lengths may be on the CPU, as for CUDA; torch would mix them with remote tensors."""
    lengths = [each.to(log_probs.device) for each in (input_lengths, target_lengths)]
    return aten.ctc_loss.Tensor.decompose(log_probs, targets, *lengths, blank, reduction, zero_infinity)


def one_hot(classes: Any, num_classes: int = -1) -> Any:
    """Whole: of tensors like ours torch does not look whether the classes are lawful."""
    if derivatives.watched():
        return aten.one_hot.default.decompose(classes, num_classes)
    if num_classes == -1 and classes.numel() and classes.dtype is torch.int64:
        least, most = torch.stack(classes.aminmax()).tolist()
        if least < 0:
            raise RuntimeError("Class values must be non-negative.")
        num_classes = most + 1
    return dispatch(aten.one_hot.default, (classes, num_classes), {})


def batch_norm(
    source: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float, eps: float,
    cudnn: bool,
) -> Any:  # fmt: skip
    """One call with one result where nothing is learnt; else as torch takes it apart."""
    args = (source, weight, bias, mean, variance, training, momentum, eps, cudnn)
    wanted = torch.is_grad_enabled() and any(part is not None and part.requires_grad for part in args[:3])
    if training or wanted or derivatives.watched():
        return aten.batch_norm.default.decompose(*args)
    return send(plan_of(aten.batch_norm.default), args, {})


def _whole(func: Any) -> Any:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return dispatch(func, args, kwargs)

    return kernel


def _composites_with_out() -> list[Any]:
    """Composite operators that write into `out=`."""
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        composite = torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
        if not name.startswith("aten::") or not composite or "fbgemm" in name:
            continue
        bare, _, overload = name.removeprefix("aten::").partition(".")
        func = getattr(getattr(torch.ops.aten, bare), overload or "default", None)
        if func is not None and _writes_named(func._schema):
            found.append(func)
    return found


def _writes_named(schema: Any) -> bool:
    written = [argument for argument in schema.arguments if argument.alias_info and argument.alias_info.is_write]
    takes_tensors = any("Tensor" in str(a.type) for a in schema.arguments if a not in written)
    return bool(written) and takes_tensors and all(argument.kwarg_only for argument in written)


def whole_matmul() -> None:
    """Send `matmul` whole, until complex numbers are met."""
    if not _matmul:
        _matmul.append(torch.library.Library("aten", "IMPL"))
        _matmul[0].impl("matmul", _whole(aten.matmul.default), "PrivateUse1")


def saw_complex() -> None:
    """From now on torch takes `matmul` apart: whole, it has no derivative of complex numbers."""
    if _matmul:
        _matmul.pop()._destroy()


def register(library: Any) -> None:
    ON_COMPLEX.append(saw_complex)
    SPECIALS["aten::_scaled_dot_product_flash_attention_for_cpu_backward"] = attention_backward
    library.impl("linear", _whole(aten.linear.default), "PrivateUse1")
    whole_matmul()
    library.impl("scaled_dot_product_attention", attention, "AutogradPrivateUse1")
    library.impl("ctc_loss.Tensor", ctc_loss, "AutogradPrivateUse1")
    library.impl("batch_norm", batch_norm, "AutogradPrivateUse1")
    library.impl("one_hot", one_hot, "AutogradPrivateUse1")
    SPECIALS["aten::batch_norm"] = lambda plan, args, kwargs: batch_norm(*args, **kwargs)
    derivatives.register(library)
    rnn.register(library)
    for func in _composites_with_out():
        library.impl(func.name().removeprefix("aten::"), _whole(func), "PrivateUse1")
