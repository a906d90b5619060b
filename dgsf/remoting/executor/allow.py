"""Which operators a session may call: a list made by rules over torch's own schemas.

An operator is allowed if it belongs to `aten`, is a real kernel (not a TorchScript helper), takes and returns
nothing but tensors, numbers, strings and types, and is in none of the forbidden families: files, storages,
streams, autograd's insides, packed weights, opaque layouts.  The rules say yes or no to operators; what a
sandboxed process must never reach is kept from it by the sandbox, not by this list.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import torch

from dgsf.errors import OpNotAllowed

_PLAIN = frozenset((
    "Tensor", "int", "bool", "float", "number", "str", "complex", "ScalarType", "Layout", "MemoryFormat", "Device",
    "Generator", "SymInt", "QScheme",
))  # fmt: skip
_WRAPPED = re.compile(r"(?:Optional|List)\[(.*)\]")

# Name patterns of operators that reach beyond tensors and their values, with the reason.
FORBIDDEN = {
    "files": r"from_file",
    "storages": r"set_|set|_?set_data|data|swap|_lazy_clone|_cow.*|_storage.*|_reshape_alias.*",
    "streams and pinned memory": r"record_stream|.*pin_memory.*|is_pinned|_async_error|_make_dep_token",
    "memory without values": r"resize|resize_as|_resize_output",  # copies of those that work in place
    "autograd": r"_?backward|requires_grad_|retain_grad|retains_grad|_version|is_leaf|output_nr|grad|_make_dual.*"
    r"|_fw_primal.*|_unpack_dual|_new_zeros_with_same_feature_meta.*"
    r"|rename_?|refine_names|align_.*",
    "packed weights": r"fbgemm_.*|.*prepack.*|.*int4pack.*|.*int8pack.*|_pack_.*packed.*|_dyn_quant.*|_weight_int.*"
    r"|_convert_weight.*|_cslt.*|_sparse_semi.*|_to_sparse_semi.*|_mixed_dtypes_linear|_wrapped_.*",
    "quantized tensors": r"quantize_per.*|q_.*|quantized_.*|dequantize.*|_empty_.*quantized|_make_per_.*"
    r"|empty_quantized|int_repr|qscheme|choose_qparams_optimized|_fused_moving.*obs.*|fused_moving_avg_obs.*|_saturate_weight.*",
    "sparse and opaque layouts": r".*sparse.*|_?nested_.*|.*_nested_.*|.*mkldnn(?!_rnn_layer).*|_coalesced.*"
    r"|coalesce|_coalesce|is_coalesced|_?indices|_?values|_?indices_copy|_?values_copy|_spsolve|crow_indices.*|ccol_indices.*|col_indices.*|row_indices.*"
    r"|to_padded_tensor|_jagged.*|_padded_dense.*|_spdiags|hspmm.*|sspaddmm.*|_dimI|_dimV|_nnz|to_dense_backward"
    r"|_validate_sparse.*|_to_dense|to_dense",
    "libraries and backends": r"_?cudnn_.*|_use_cudnn.*|_?miopen.*|_?cufft.*|.*vulkan.*|.*metal.*|_?mps_.*|_?nnpack.*"
    r"|_?xnnpack.*|_copy_from.*|_cuda.*|_use_.*|_triton.*|_flash_attention.*|_efficient_attention.*"
    r"|_scaled_dot_product_(?:efficient|cudnn|flash|fused).*(?<!cpu)(?<!cpu_backward)|_test_.*|_print|_dump.*"
    r"|_propagate_xla.*|_sobol.*|.*_mps|.*_mps_backward|.*_for_mps|_foobar|_(?:add|remove)_batch_dim",
}  # fmt: skip
_FORBIDDEN = {why: re.compile(pattern) for why, pattern in FORBIDDEN.items()}


def family_of(name: str) -> str:
    """The forbidden family of an operator's bare name ('from_file'), or an empty text."""
    return next((why for why, pattern in _FORBIDDEN.items() if pattern.fullmatch(name)), "")


def _plain(kind: Any) -> bool:
    text = str(kind)
    while match := _WRAPPED.fullmatch(text):
        text = match[1]
    return text in _PLAIN


def _speaks_tensors(schema: Any) -> bool:
    """Only plain types, and at least one tensor among them."""
    parts = [*schema.arguments, *schema.returns]
    if not all(_plain(part.real_type) for part in parts):
        return False
    return any("Tensor" in str(part.real_type) for part in parts) and "Dimname" not in str(schema)


def full_name(schema: Any) -> str:
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


def is_allowed(schema: Any) -> bool:
    if not schema.name.startswith("aten::") or family_of(schema.name[6:]):
        return False
    if not _speaks_tensors(schema):
        return False
    return bool(torch._C._dispatch_has_kernel(full_name(schema)))


@cache
def allowed() -> frozenset[str]:
    """Every allowed operator, as 'aten::add.Tensor' or 'aten::relu'."""
    return frozenset(full_name(schema) for schema in torch._C._jit_get_all_schemas() if is_allowed(schema))


@cache
def resolve(name: str) -> Any:
    """The overload of this name; OpNotAllowed if it is none or not on the list."""
    bare, _, overload = name.removeprefix("aten::").partition(".")
    canonical = f"aten::{bare}" if overload in ("", "default") else f"aten::{bare}.{overload}"
    if canonical not in allowed():
        why = family_of(bare) if name.startswith("aten::") else "not an aten operator"
        raise OpNotAllowed(f"{name[:100]} is not available on a remote device" + (f" ({why})" if why else ""))
    return getattr(getattr(torch.ops.aten, bare), overload or "default")
