"""`flex_attention` on the device, as the CPU does it without a compiler; gradients as of attention written out."""

from __future__ import annotations

import pytest
import torch
from inprocess_stream import InProcessStream
from remote_device import same
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

from dgsf.remoting.guest.attach import bind

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "FutureWarning", "UserWarning")
]
LENGTH = 16


@pytest.fixture(params=["", "cuda"])
def remote(request):
    with bind(InProcessStream(), alias=request.param) as device:
        yield device


@pytest.fixture
def qkv():
    """The query's heads are not where memory has them, as after `view(...).transpose(1, 2)`."""
    torch.manual_seed(0)
    return torch.randn(2, LENGTH, 4, 8).transpose(1, 2), torch.randn(2, 4, LENGTH, 8), torch.randn(2, 4, LENGTH, 8)


def there(tensors, device):
    return [each.to(device) for each in tensors]


def causal(batch, head, i, j):
    return i >= j


def by_document(device):
    document = torch.arange(LENGTH, device=device) // 5
    return lambda batch, head, i, j: document[i] == document[j]


def biased(device):
    slopes = torch.arange(4.0, device=device)
    return lambda score, batch, head, i, j: score + slopes[head] * (i - j)


@pytest.mark.parametrize(
    "options",
    [
        lambda device: {},
        lambda device: {"score_mod": biased(device), "scale": 0.3},
        lambda device: {"block_mask": create_block_mask(causal, None, None, LENGTH, LENGTH, device=device)},
        lambda device: {"block_mask": create_block_mask(by_document(device), 2, 4, LENGTH, LENGTH, device=device)},
    ],
)
def test_it_is_what_the_cpu_gives(options, qkv, remote):
    expected = flex_attention(*qkv, **options("cpu"))
    got = flex_attention(*there(qkv, remote), **options(remote))
    same(got, expected)
    assert got.stride() == expected.stride()


def test_heads_may_share_keys_and_the_sums_are_told(qkv, remote):
    query, key, value = qkv[0], qkv[1][:, :2], qkv[2][:, :2]
    expected = flex_attention(query, key, value, enable_gqa=True, return_aux=AuxRequest(lse=True))
    got = flex_attention(
        *there((query, key, value), remote), enable_gqa=True, return_aux=AuxRequest(lse=True, max_scores=True)
    )
    same(got[0], expected[0])
    same(got[1].lse, expected[1].lse)
    assert got[1].max_scores.shape == (2, 4, LENGTH)


def test_gradients_reach_the_inputs_and_what_a_modification_captured(qkv, remote):
    leaves = [each.detach().clone().requires_grad_() for each in (*qkv, torch.arange(4.0))]
    i = torch.arange(LENGTH)
    scores = leaves[0] @ leaves[1].mT / 8**0.5 + leaves[3][:, None, None] * (i[:, None] - i)
    (scores.masked_fill(i[:, None] < i, float("-inf")).softmax(-1) @ leaves[2]).square().sum().backward()
    query, key, value, slopes = [each.detach().to(remote).requires_grad_() for each in leaves]
    mask = create_block_mask(causal, None, None, LENGTH, LENGTH, device=remote)

    def bias(score, batch, head, i, j):
        return score + slopes[head] * (i - j)

    flex_attention(query, key, value, score_mod=bias, block_mask=mask).square().sum().backward()
    for got, expected in zip((query, key, value, slopes), leaves, strict=True):
        torch.testing.assert_close(got.grad.cpu(), expected.grad)


def test_compiled_it_runs_as_written_and_autocast_lowers_it(qkv, remote):
    same(torch.compile(flex_attention)(*there(qkv, remote)), flex_attention(*qkv))
    with torch.autocast(remote.type, torch.bfloat16):
        lowered = flex_attention(*there(qkv, remote))
    with torch.autocast("cpu", torch.bfloat16):
        expected = flex_attention(*qkv)
    assert lowered.dtype is torch.bfloat16
    torch.testing.assert_close(lowered.cpu(), expected)


def test_torchs_own_refusals_stand_and_the_cpu_keeps_its_own(qkv, remote):
    mask = create_block_mask(causal, None, None, LENGTH, LENGTH, device="cpu")
    with pytest.raises(RuntimeError, match="q/k/v and block_mask to be on the same device"):
        flex_attention(*there(qkv, remote), block_mask=mask)
    with pytest.raises(NotImplementedError, match="backward on CPU"):
        flex_attention(qkv[0].requires_grad_(), *qkv[1:])


def test_it_is_torchs_again_afterwards():
    before = flex._validate_device, flex.flex_attention_hop
    with bind(InProcessStream()):
        assert flex._validate_device is not before[0]
    assert (flex._validate_device, flex.flex_attention_hop) == before
