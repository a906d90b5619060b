"""The list of operators: derived by rules, its size and its forbidden families locked."""

from __future__ import annotations

import pytest
import torch

from dgsf.errors import OpNotAllowed
from dgsf.remoting.executor.allow import FORBIDDEN, allowed, family_of, resolve

EVERYDAY = [
    "aten::add.Tensor", "aten::mm", "aten::convolution", "aten::_softmax", "aten::native_layer_norm",
    "aten::empty_strided", "aten::_foreach_add_.List", "aten::_fused_adamw_", "aten::index.Tensor", "aten::copy_",
    "aten::_to_copy", "aten::lstm.input", "aten::scaled_dot_product_attention", "aten::_local_scalar_dense",
    "aten::nonzero", "aten::as_strided", "aten::resize_", "aten::embedding_dense_backward", "aten::linalg_svd",
    "aten::bernoulli_.float", "aten::_unsafe_view", "aten::detach",
]  # fmt: skip
NEVER = [
    "aten::from_file", "aten::set_.source_Storage", "aten::set_", "aten::set_data", "aten::record_stream",
    "aten::pin_memory", "aten::backward", "aten::_cudnn_init_dropout_state", "aten::to_sparse",
    "aten::_sparse_coo_tensor_unsafe", "aten::_nested_view_from_buffer", "aten::fbgemm_pack_gemm_matrix_fp16",
    "aten::quantize_per_tensor", "aten::_reshape_alias", "aten::_nested_tensor_from_tensor_list", "aten::to_mkldnn",
    "aten::save", "aten::__getitem__.t", "prim::Print", "c10d::send", "aten::add.int", "aten::_make_dual",
    "quantized::linear", "profiler::_record_function_enter", "mkldnn::_linear_pointwise",
]  # fmt: skip


@pytest.mark.parametrize("name", EVERYDAY)
def test_what_programs_use_is_allowed(name: str) -> None:
    assert resolve(name)._schema.name == name.partition(".")[0]


@pytest.mark.parametrize("name", NEVER)
def test_what_reaches_beyond_tensors_is_refused(name: str) -> None:
    with pytest.raises(OpNotAllowed, match="not available on a remote device"):
        resolve(name)


def test_the_list_is_this_long_on_this_torch() -> None:
    """A new torch may change it: then look at what came, and write the new number."""
    names = sorted({name.partition(".")[0] for name in allowed()})
    assert torch.__version__.startswith("2.13")
    assert (len(allowed()), len(names)) == (2606, 1270)


def test_nothing_of_a_forbidden_family_is_on_the_list() -> None:
    assert not [name for name in allowed() if family_of(name[6:].partition(".")[0])]
    assert len(FORBIDDEN) == 9


def test_nothing_takes_a_storage_a_stream_or_a_callback() -> None:
    words = ("Storage", "Stream", "Dict", "Any", "RRef", "Future", "Dimname", "__torch__")
    for name in allowed():
        schema = str(resolve(name)._schema)
        assert not any(word in schema.partition("(")[2] for word in words), schema
