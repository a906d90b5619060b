"""A sample of torch's own operator cases; `make opinfo` runs them all."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("expecttest", reason="torch's operator cases need it")
sys.path.insert(0, str(Path(__file__).parents[1] / "opinfo"))
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "FutureWarning", "UserWarning")
]

SAMPLE = [
    "add",
    "sub",
    "mul",
    "div.no_rounding_mode",
    "pow",
    "exp",
    "clamp",
    "where",
    "masked_fill",
    "cat",
    "stack",
    "split",
    "index_select",
    "index_put",
    "gather",
    "scatter_add",
    "sum",
    "mean",
    "var",
    "amax",
    "argmax",
    "cumsum",
    "sort",
    "topk",
    "unique",
    "nonzero",
    "matmul",
    "bmm",
    "addmm",
    "einsum",
    "linalg.svd",
    "linalg.inv",
    "fft.rfft2",
    "nn.functional.conv2d",
    "nn.functional.batch_norm",
    "nn.functional.layer_norm",
    "nn.functional.cross_entropy",
    "softmax",
    "nn.functional.embedding_bag",
    "nn.functional.interpolate.bilinear",
    "nn.functional.scaled_dot_product_attention",
    "bernoulli",
    "arange",
    "zeros_like",
    "resize_",
    "as_strided",
    "expand",
    "view_as_complex",
]


@pytest.mark.parametrize("name", SAMPLE)
def test_operator(name, device):
    import cases

    outcome = cases.check(cases.operators()[name], device, limit=3)
    assert not outcome.wrong and not outcome.refused


DERIVED = ["matmul", "nn.functional.linear", "nn.functional.scaled_dot_product_attention", "nn.functional.batch_norm"]


@pytest.mark.parametrize("name", DERIVED)
def test_further_derivatives(name, device):
    import cases

    outcome = cases.check_derivatives(cases.operators()[name], device, limit=2)
    assert outcome.tried and not outcome.wrong and not outcome.refused
