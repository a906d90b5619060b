"""What the guest believes of every tensor is what the device holds, also in the types that tests use less.

A sample of torch's operator cases; `tests/opinfo/run.py --honest --dtypes float16,bfloat16,float64` tries them all.
"""

import sys
from pathlib import Path

import pytest

pytest.importorskip("expecttest", reason="torch's operator cases need it")
sys.path.insert(0, str(Path(__file__).parents[1] / "opinfo"))
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "FutureWarning", "UserWarning")
]

SAMPLE = [
    "add", "div.no_rounding_mode", "sum", "mean", "var", "cumsum", "matmul", "tensordot", "softmax", "norm",
    "native_layer_norm", "nn.functional.layer_norm", "nn.functional.group_norm", "nn.functional.batch_norm",
    "nn.functional.conv2d", "nn.functional.cross_entropy", "nn.functional.scaled_dot_product_attention",
]  # fmt: skip


@pytest.fixture
def honest(device):
    """Every tensor that the guest's dispatch gives is compared with the device's."""
    import honest

    from dgsf.remoting.guest import dispatch, tensor

    honest.install()
    yield device
    tensor.set_dispatch(dispatch.dispatch)


@pytest.mark.parametrize("name", SAMPLE)
def test_metadata(name, honest):
    import cases
    import torch

    outcome = cases.check(cases.operators()[name], honest, 2, (torch.float16, torch.bfloat16, torch.float64))
    assert not [reason for reason in outcome.wrong if "MetadataDiffers" in reason]
    assert outcome.tried


@pytest.mark.parametrize("strides", [(0, 0), (0, 1), (1, 0)])
def test_half_precision_that_is_spread_over_a_dimension_keeps_the_device_s_order(strides, honest):
    import torch

    for dtype in (torch.float16, torch.bfloat16):
        spread = torch.ones(4, dtype=dtype, device=honest).as_strided((2, 3), strides)
        turned = torch.ones(3, 2, dtype=dtype, device=honest).t()
        for first, second in ((spread, turned), (turned, spread), (spread, spread)):
            assert (first * second).shape == (2, 3)  # and `honest` has nothing to say
