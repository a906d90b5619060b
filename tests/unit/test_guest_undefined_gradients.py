"""A function that stops the gradient sends none back: layers before it have none either, and nothing fails."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from dgsf.remoting.guest.dispatch import dispatch


class Stop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor):
        return tensor.clone()

    @staticmethod
    def backward(ctx, grad):
        return None


pytestmark = pytest.mark.usefixtures("whole_matmul")


def attended(x, *rest):
    return functional.scaled_dot_product_attention(x, x, x, *rest)


LAYERS = {
    "matmul": ((2, 3, 4), lambda x: x @ x.transpose(-1, -2)),
    "matmul of a vector": ((3, 4), lambda x: x[0] @ x.t()),
    "dot": ((4,), lambda x: x @ x),
    "linear": ((2, 3, 4), nn.Linear(4, 2)),
    "bilinear": ((3, 4), lambda x: functional.bilinear(x, x, torch.ones(2, 4, 4, device=x.device))),
    "attention": ((1, 1, 2, 4), attended),
    "attention with a mask": ((1, 1, 2, 4), lambda x: attended(x, torch.ones(2, 2, device=x.device).bool())),
    "multi-head attention": ((2, 1, 4), nn.MultiheadAttention(4, 2)),
    "encoder layer": ((2, 1, 4), nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0)),
    "LSTM": ((2, 1, 4), nn.LSTM(4, 4, 2)),
    "GRU": ((2, 1, 4), nn.GRU(4, 4)),
    "RNN": ((2, 1, 4), nn.RNN(4, 4)),
    "LSTM cell": ((2, 4), nn.LSTMCell(4, 4)),
    "GRU cell": ((2, 4), nn.GRUCell(4, 4)),
    "convolution": ((1, 1, 4, 4), nn.Conv2d(1, 2, 2)),
    "batch norm": ((3, 4), nn.BatchNorm1d(4)),
    "batch norm in eval": ((3, 4), nn.BatchNorm1d(4).eval()),
    "layer norm": ((3, 4), nn.LayerNorm(4)),
    "group norm": ((3, 4), nn.GroupNorm(2, 4)),
    "solve": ((3, 3), lambda x: torch.linalg.solve(x + 3 * torch.eye(3, device=x.device), x)),
    "CTC": (
        (5, 1, 4),
        lambda x: functional.ctc_loss(
            x.log_softmax(-1), torch.tensor([[1, 2]], device=x.device), torch.tensor([5]), torch.tensor([2])
        ),
    ),
}


def gradient(layer, shape, device):
    x = torch.linspace(0, 1, torch.Size(shape).numel()).reshape(shape).to(device).requires_grad_()
    weights = list(layer.to(device).parameters()) if isinstance(layer, nn.Module) else []
    inputs = (x, x, x) if isinstance(layer, nn.MultiheadAttention) else (x,)
    out = layer(*inputs)
    (Stop.apply(out[0] if isinstance(out, tuple) else out).sum() + (2 * x).sum()).backward()
    assert all(weight.grad is None for weight in weights)
    return x.grad


@pytest.mark.parametrize("name", LAYERS)
def test_a_stopped_gradient_leaves_what_came_other_ways(name, device):
    shape, layer = LAYERS[name]
    assert torch.equal(gradient(copy.deepcopy(layer), shape, device).cpu(), torch.full(shape, 2.0))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("which", [0, 1])
def test_a_layer_that_gets_one_of_its_gradients_makes_do_with_it(kind, which, device):
    local = kind(4, 4)
    remote = copy.deepcopy(local).to(device)
    found = []
    for layer, x in ((local, torch.ones(2, 1, 4)), (remote, torch.ones(2, 1, 4, device=device))):
        out = layer(x)
        parts = [out[0], out[1][0] if isinstance(out[1], tuple) else out[1]]
        parts[which] = Stop.apply(parts[which])
        (parts[0].sum() + parts[1].sum()).backward()
        found.append(layer.weight_hh_l0.grad)
    torch.testing.assert_close(found[1].cpu(), found[0])


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("function", [torch.matmul, functional.linear])
def test_gradcheck_of_what_is_sent_whole(function, fast, device):
    a, b = (torch.rand(2, 2, dtype=torch.double, device=device, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(function, (a, b), fast_mode=fast)


def test_gradcheck_of_attention(device):
    parts = [torch.rand(1, 1, 2, 2, dtype=torch.double, device=device, requires_grad=True) for _ in range(3)]
    assert torch.autograd.gradcheck(functional.scaled_dot_product_attention, parts)


def test_an_operator_that_needs_a_tensor_and_gets_none_says_so(device, stream):
    x = torch.ones(2, 2, device=device)
    made = len(stream.calls)
    with pytest.raises(RuntimeError, match=r"got None .* argument #0 'grad_output' of aten::gelu_backward"):
        dispatch(torch.ops.aten.gelu_backward.default, (None, x), {})
    assert len(stream.calls) == made
    assert x.sum().item() == 4
