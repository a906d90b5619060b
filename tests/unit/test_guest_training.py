"""Unchanged training code on the remote device: gradients, optimizers, mixed precision, recurrent layers, errors."""

import copy

import pytest
import torch
from remote_device import same
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from dgsf.remoting.guest import tensor

# torch warns of its own past on the way
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "FutureWarning", "UserWarning")
]


def both(build, *shapes, device):
    """A module or function with the same inputs here and there: outputs and all gradients are equal."""
    torch.manual_seed(0)
    made, inputs = build(), [torch.randn(*shape) for shape in shapes]
    found = []
    for where in (torch.device("cpu"), device):
        run = copy.deepcopy(made).to(where) if isinstance(made, torch.nn.Module) else made
        given = [part.detach().clone().to(where).requires_grad_() for part in inputs]
        out = run(*given)
        out = out[0] if isinstance(out, tuple) else out
        out.pow(2).sum().backward()
        weights = list(run.parameters()) if isinstance(run, torch.nn.Module) else []
        found.append([out.detach().cpu(), *(part.grad.cpu() for part in (*given, *weights))])
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize(("left", "right"), [
    ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (4,)),
    ((2, 7, 3, 4), (2, 7, 4, 5)), ((7, 3, 4), (2, 7, 4, 5)), ((2, 1, 3, 4), (7, 4, 5)), ((4,), (2, 4, 5)),
    ((3, 4), (2, 4, 5)), ((0, 4), (4, 3)),
])  # fmt: skip
def test_matmul_of_all_shapes(left, right, device):
    both(lambda: torch.matmul, left, right, device=device)


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (0, 4)])
def test_linear_is_one_call(shape, device, stream):
    both(lambda: torch.nn.Linear(4, 5), shape, device=device)
    layer, x = torch.nn.Linear(4, 5).to(device), torch.ones(shape, device=device)
    stream.calls.clear()
    layer(x)
    assert stream.calls == ["aten::linear"]


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": True}])
def test_attention(options, device, stream):
    if "attn_mask" in options:
        options = {"attn_mask": torch.ones(6, 6, dtype=torch.bool).tril()}

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, **{n: _there(o, q) for n, o in options.items()})

    both(lambda: attend, (1, 2, 6, 8), (1, 2, 6, 8), (1, 2, 6, 8), device=device)
    parts = [torch.ones(1, 2, 6, 8, device=device) for _ in range(3)]
    stream.calls.clear()
    attend(*parts)
    assert [name for name in stream.calls if name != "upload"] == ["aten::scaled_dot_product_attention"]


def _there(value, like):
    return value.to(like.device) if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("layer", [
    lambda: torch.nn.LSTM(4, 5, 2), lambda: torch.nn.LSTM(4, 5, bidirectional=True, batch_first=True),
    lambda: torch.nn.LSTM(4, 5, bias=False), lambda: torch.nn.LSTM(4, 5, proj_size=3),
    lambda: torch.nn.GRU(4, 5, bidirectional=True), lambda: torch.nn.GRU(4, 5, 2, bias=False, batch_first=True),
    lambda: torch.nn.RNN(4, 5), lambda: torch.nn.RNN(4, 5, 2, nonlinearity="relu", bidirectional=True),
])  # fmt: skip
def test_recurrent_layers(layer, device, stream):
    both(layer, (3, 2, 4), device=device)
    remote, x = layer().to(device), torch.ones(3, 2, 4, device=device)
    stream.calls.clear()
    with torch.no_grad():
        remote(x)
    assert len([name for name in stream.calls if name != "aten::zeros"]) == 1


@pytest.mark.parametrize("layer", [lambda: torch.nn.GRU(4, 5, 2), lambda: torch.nn.RNN(4, 5, bidirectional=True)])
def test_recurrent_layers_train_in_a_call_per_layer_and_direction(layer, device, stream):
    remote, x = layer().to(device), torch.ones(3, 2, 4, device=device)
    stream.calls.clear()
    out, last = remote(x)
    (out.sum() + last.sum()).backward()
    for name in ("aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward"):
        assert stream.calls.count(name) == 2
    assert len(stream.calls) < 50


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_layers_drop_out_between_them(kind, packed, device):
    def run(x):  # everything is dropped, so nothing is left to chance
        torch.manual_seed(0)
        layers = kind(4, 5, 3, dropout=1.0, bidirectional=True, batch_first=True).to(x.device)
        return layers(torch.nn.utils.rnn.pack_padded_sequence(x, [3, 1], batch_first=True) if packed else x)[0]

    found, expected = run(torch.ones(2, 3, 4, device=device)), run(torch.ones(2, 3, 4))
    same(found.data if packed else found, expected.data if packed else expected)


@pytest.mark.parametrize("layer", [lambda: torch.nn.GRU(4, 5, bidirectional=True), lambda: torch.nn.RNN(4, 5)])
def test_recurrent_layers_can_be_derived_twice(layer, device):
    torch.manual_seed(0)
    local = layer()
    remote, x = copy.deepcopy(local).to(device), torch.randn(3, 2, 4)
    for model, given in ((local, x.clone()), (remote, x.to(device))):
        given.requires_grad_(True)
        (slope,) = torch.autograd.grad(model(given)[0].pow(2).sum(), given, create_graph=True)
        slope.pow(2).sum().backward()
    for here, there in zip(local.parameters(), remote.parameters(), strict=True):
        same(there.grad, here.grad)


@pytest.mark.parametrize(("build", "shape"), [
    (lambda: torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
                                 torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(36, 2)), (2, 3, 8, 8)),
    (lambda: torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (2, 5, 8)),
    (lambda: torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 3)), (2, 5, 8)),
])  # fmt: skip
def test_models(build, shape, device):
    both(build, shape, device=device)


def test_images_in_channels_last_order_keep_it(device):
    local = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    remote = copy.deepcopy(local).to(device)
    x = torch.randn(1, 3, 6, 6).to(memory_format=torch.channels_last)
    out = remote(x.to(device))
    assert out.stride() == local(x).stride()
    same(out.flatten(1), local(x).flatten(1))


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("how", [{}, {"foreach": False}, {"fused": True}])
def test_optimizers_built_before_or_after_the_move(kind, how, device):
    local = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    remote = copy.deepcopy(local)
    x = torch.randn(5, 4)
    early = kind(remote.parameters(), lr=0.1, **how)
    remote.to(device)
    here = kind(local.parameters(), lr=0.1)
    for optimizer, model, given in ((here, local, x), (early, remote, x.to(device))):
        for _ in range(3):
            optimizer.zero_grad()
            model(given).pow(2).mean().backward()
            optimizer.step()
    torch.testing.assert_close(remote.cpu().state_dict(), local.state_dict())


def test_tied_weights_stay_tied(device):
    embedding, head = torch.nn.Embedding(5, 4), torch.nn.Linear(4, 5, bias=False)
    head.weight = embedding.weight
    model, weight = torch.nn.ModuleList([embedding, head]), embedding.weight
    model.to(device)
    assert weight is embedding.weight is head.weight and isinstance(weight, tensor.RemoteTensor)
    model.cpu()
    assert weight is embedding.weight is head.weight and weight.device.type == "cpu"


def test_mixed_precision(device):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2)).to(device)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("dgsf")
    with torch.autocast("dgsf", dtype=torch.bfloat16):
        out = model(torch.randn(4, 4, device=device))
        loss = F.cross_entropy(out, torch.tensor([0, 1, 0, 1], device=device))
    assert (out.dtype, loss.dtype) == (torch.bfloat16, torch.float32)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert model[0].weight.grad.dtype is torch.float32 and scaler.get_scale() == 65536.0


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_parts_repeat_their_dropout(reentrant, device):
    x = torch.ones(64, device=device, requires_grad=True)
    out = checkpoint(lambda part: F.dropout(part, 0.5), x, use_reentrant=reentrant)
    out.sum().backward()
    same(x.grad, out.cpu())


def test_function_transforms(device):
    x = torch.randn(3, 3)
    for transform in (
        lambda a: torch.func.grad(lambda b: (b @ b).sum())(a),
        lambda a: torch.func.vmap(lambda b: b * 2)(a),
        lambda a: torch.func.jvp(lambda b: b @ b, (a,), (a,))[1],
        lambda a: torch.func.hessian(lambda b: b.pow(3).sum())(a[0]),
    ):
        same(transform(x.to(device)), transform(x))


@pytest.mark.parametrize("x", [torch.randn(3, 4), torch.randn(4, 3).t()])
def test_linearized_functions(x, device, stream):
    value, derivative = torch.func.linearize(torch.sin, x)
    remote_value, remote_derivative = torch.func.linearize(torch.sin, x.to(device))
    same(remote_value, value)
    same(remote_derivative(torch.ones(3, 4, device=device)), derivative(torch.ones(3, 4)))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x.to(device), torch.ones(3, 4, device=device))
        tangent = torch.autograd.forward_ad.unpack_dual(torch.sin(dual)).tangent
    same(tangent, x.cos())
    zeros = torch.ops.aten._new_zeros_with_same_feature_meta
    for batched, batches in ((torch.ones(5, 3, 4), 1), (x, 0)):
        local = zeros(batched, x, self_num_batch_dims=batches)
        remote = zeros(batched.to(device), x.to(device), self_num_batch_dims=batches)
        same(remote, local)
        assert remote.stride() == local.stride()
    assert not any("feature_meta" in call for call in stream.calls)  # which devices do not know


def test_traces_know_the_tensors_that_they_close_over(device):
    weight = torch.randn(3)
    there, given = weight.to(device), torch.ones(3, device=device)
    traced = make_fx(lambda x: (x + there).sin() * there)(torch.zeros(3, device=device))
    same(traced(given), (1 + weight).sin() * weight)


def test_an_error_inside_backward_reaches_the_user(device, monkeypatch):
    x = torch.ones(3, device=device, requires_grad=True)
    y = torch.relu(x).sum()
    real = tensor._dispatch

    def failing(func, args, kwargs):
        if "threshold_backward" in str(func):
            raise KeyError("lost")
        return real(func, args, kwargs)

    monkeypatch.setattr(tensor, "_dispatch", failing)
    with pytest.raises(KeyError, match="lost"):
        y.backward()
    monkeypatch.undo()
    torch.relu(x).sum().backward()
    same(x.grad, torch.ones(3))


def test_compiled_functions_run_as_written(device):
    same(torch.compile(lambda a: a + 1)(torch.ones(2, device=device)), torch.full((2,), 2.0))


def test_data_loaders_with_pinned_memory(device):
    data = torch.utils.data.TensorDataset(torch.arange(6.0))
    batches = [batch.to(device) for (batch,) in torch.utils.data.DataLoader(data, batch_size=3, pin_memory=True)]
    same(batches[1], torch.tensor([3.0, 4.0, 5.0]))


@pytest.mark.parametrize("reentrant", [False, True])
def test_the_second_forward_of_a_checkpoint_drops_the_same_values(reentrant, device):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 4)).to(device)
    gradients = []
    for run in (model, lambda x: checkpoint(model, x, use_reentrant=reentrant)):
        torch.manual_seed(5)
        x = torch.arange(12.0).view(3, 4).to(device).requires_grad_()
        run(x).sum().backward()
        gradients.append(x.grad.cpu())
    assert torch.equal(*gradients)


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell", "RNNCell"])
@pytest.mark.parametrize("bias", [True, False])
def test_single_steps_of_recurrent_layers(kind, bias, device):
    both(lambda: getattr(torch.nn, kind)(3, 4, bias=bias), (2, 3), device=device)
    layer, x = getattr(torch.nn, kind)(3, 4, bias=bias), torch.randn(2, 3)
    with torch.no_grad():
        here = layer(x)
        there = layer.to(device)(x.to(device))
    for remote, local in zip(*(out if isinstance(out, tuple) else (out,) for out in (there, here)), strict=True):
        same(remote, local)


def test_attention_with_a_scale_of_zero(device):
    q, k = torch.randn(2, 1, 3, 4), torch.randn(2, 1, 5, 4)
    with torch.no_grad():
        there = F.scaled_dot_product_attention(q.to(device), k.to(device), k.to(device), scale=0.0)
        same(there, F.scaled_dot_product_attention(q, k, k, scale=0.0))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ctc_loss_with_lengths_on_the_cpu(reduction, device):
    lengths = torch.tensor([5, 4]), torch.tensor([2, 1])
    targets = torch.ones(2, 2, dtype=torch.long)

    def loss(scores):
        return F.ctc_loss(scores.log_softmax(-1), targets.to(scores.device), *lengths, reduction=reduction)

    both(lambda: loss, (5, 2, 4), device=device)


def test_parameters_print_as_they_do_elsewhere(device):
    text = repr(torch.nn.Parameter(torch.ones(2).to(device)))
    assert text == "Parameter containing:\ntensor([1., 1.], device='dgsf:0', requires_grad=True)"
