"""Derivatives of derivatives, and by forward mode, of what is sent whole."""

import threading
import warnings
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from remote_device import same
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

from dgsf.errors import OpNotAllowed
from dgsf.remoting.guest import dispatch, plans

pytestmark = [
    pytest.mark.usefixtures("whole_matmul"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),  # by which torch finds tangents
]
SHAPES = [
    ((3,), (3,)),
    ((3,), (3, 2)),
    ((4, 3), (3,)),
    ((4, 3), (3, 2)),
    ((2, 4, 3), (3, 2)),
    ((2, 1, 4, 3), (5, 3, 2)),
]


def slopes(function, *given, device):
    """The second derivatives of a function of tensors."""
    leaves = [each.to(device).requires_grad_() for each in given]
    first = torch.autograd.grad(function(*leaves).pow(3).sum(), leaves, create_graph=True)
    return torch.autograd.grad(sum(each.pow(2).sum() for each in first), leaves)


def tangent(function, x):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(x, torch.ones_like(x)))).tangent


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_products_can_be_derived_twice(left, right, device):
    torch.manual_seed(0)
    given = torch.randn(left).double(), torch.randn(right).double()
    found, expected = (slopes(torch.matmul, *given, device=where) for where in (device, "cpu"))
    for there, here in zip(found, expected, strict=True):
        same(there, here)


def test_layers_can_be_derived_twice_and_by_transforms(device):
    torch.manual_seed(0)
    given = torch.randn(2, 4, 3).double(), torch.randn(5, 3).double(), torch.randn(5).double()
    found, expected = (slopes(F.linear, *given, device=where) for where in (device, "cpu"))
    for there, here in zip(found, expected, strict=True):
        same(there, here)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
    twice = torch.func.jacrev(torch.func.jacrev(lambda x: model(x).sum()))
    expected = twice(given[0][0, 0])
    model.to(device)
    same(twice(given[0][0, 0].to(device)), expected)


@pytest.mark.parametrize("layer", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
@pytest.mark.parametrize("how", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False, "batch_first": True}])
def test_recurrent_layers_can_be_derived_twice_and_by_transforms(layer, how, device):
    torch.manual_seed(0)
    model, x = layer(4, 5, **how), torch.randn(3, 2, 4)
    samples = torch.randn(2, 3, 2, 4)

    def loss(given, sample):
        return torch.func.functional_call(model, given, (sample,))[0].pow(2).sum()

    def run(where, of_each):
        model.to(where)
        return [
            *slopes(lambda given: model(given)[0], x, device=where),
            torch.func.grad(lambda given: model(given)[0].sum())(x.to(where)),
            *of_each(dict(model.named_parameters()), samples.to(where)).values(),
        ]

    def one_by_one(parameters, samples):  # of recurrent layers the CPU's kernels cannot do all at once
        found = [torch.func.grad(loss)(parameters, sample) for sample in samples]
        return {name: torch.stack([each[name] for each in found]) for name in parameters}

    expected = run("cpu", one_by_one)
    for there, here in zip(run(device, torch.func.vmap(torch.func.grad(loss), (None, 0))), expected, strict=True):
        torch.testing.assert_close(there.detach().cpu(), here.detach(), rtol=2e-3, atol=1e-4)


def test_gradients_of_each_sample_are_one_batch(device):
    weight, x = torch.randn(2, 3), torch.randn(4, 3)
    each = torch.func.vmap(torch.func.grad(lambda w, row: F.linear(row, w).pow(2).sum()), (None, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns where it goes over the batch one by one
        same(each(weight.to(device), x.to(device)), each(weight, x))


def test_one_derivative_takes_no_more_calls_than_before(device, stream):
    left, right = (torch.ones(2, 4, 4, device=device, requires_grad=True) for _ in range(2))
    weight = torch.ones(4, 4, device=device, requires_grad=True)
    stream.calls.clear()
    (left @ right).backward(left.detach())
    F.linear(left, weight).backward(left.detach())
    products = [name for name in stream.calls if name in ("aten::matmul", "aten::linear", "aten::mm")]
    assert products == ["aten::matmul"] * 3 + ["aten::linear", "aten::matmul", "aten::mm"]


FORWARD = {
    "linear": (torch.nn.Linear(3, 2), (4, 3)),
    "matmul": (lambda x: x @ x.mT, (4, 3)),
    "batch norm": (torch.nn.BatchNorm1d(3).eval().requires_grad_(False), (4, 3)),
    "gru": (torch.nn.GRU(3, 2).requires_grad_(False), (4, 1, 3)),
    "foreach": (lambda x: torch._foreach_mul([x], 2.0)[0], (4, 3)),
}


@pytest.mark.parametrize("learning", [True, False])
@pytest.mark.parametrize("name", FORWARD)
def test_tangents_are_never_lost(name, learning, device):
    torch.manual_seed(0)
    function, shape = FORWARD[name]
    x = torch.randn(shape)

    def one(part):
        out = function(part)
        return out[0] if isinstance(out, tuple) else out

    def run(where):
        if isinstance(function, torch.nn.Module):
            function.to(where)
        with nullcontext() if learning else torch.no_grad():
            given = x.to(where)
            one(given)  # what is known of a call must not matter
            transformed = torch.func.jvp(one, (given,), (torch.ones_like(given),))[1]
            return tangent(one, given), transformed, tangent(one, given)

    expected = run("cpu")
    for there, here in zip(run(device), expected, strict=True):
        same(there, here)
    run("cpu")  # modules are back where they were


@pytest.mark.parametrize("name", ["attention", "lstm"])
def test_tangents_that_the_cpu_refuses(name, device):
    torch.manual_seed(0)
    layer = torch.nn.LSTM(4, 5).requires_grad_(False)

    def run(a):
        return F.scaled_dot_product_attention(a, a, a) if name == "attention" else layer.to(a)(a)[0]

    x = torch.randn(2, 3, 4) if name == "lstm" else torch.randn(1, 2, 3, 4)
    apart = [run(x.double() + step) for step in (1e-5, -1e-5)]
    expected = ((apart[0] - apart[1]) / 2e-5).float()
    there = x.to(device)
    layer.to(there)
    same(tangent(run, there), expected)
    same(torch.func.jvp(run, (there,), (torch.ones_like(there),))[1], expected)


def test_a_level_of_forward_mode_is_its_threads_own(device, stream):
    """Another thread's products stay whole, and this one's are whole again after it."""
    x = torch.ones(3, 3, device=device)
    done = []

    def beside():
        stream.calls.clear()
        x @ x
        F.linear(x, x)
        done.extend(stream.calls)

    with forward_ad.dual_level():
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
    beside()
    assert done == ["aten::matmul", "aten::linear"] * 2


def test_forward_mode_beside_autocast(device):
    x = torch.randn(3)
    with torch.autocast("dgsf", dtype=torch.bfloat16):
        found = tangent(lambda a: a @ a, x.to(device))
    assert found.dtype is torch.bfloat16
    same(found, (2 * x.bfloat16()).sum())


def test_products_on_the_cpu_are_not_touched(device):
    x = torch.randn(3, 3)
    same(tangent(lambda a: a @ a, x.to(device)), tangent(lambda a: a @ a, x))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert tangent(lambda a: a @ a, x[0]).dtype is torch.bfloat16


def test_flops_of_a_backward_pass_are_counted(device):
    def count(where):
        x, layer = torch.ones(2, 4, 4, device=where, requires_grad=True), torch.nn.Linear(4, 4).to(where)
        with FlopCounterMode(display=False) as counter:
            (layer(x) @ x).sum().backward()
        return counter.get_total_flops()

    assert count(device) == count("cpu") > 0


def test_traced_functions_keep_what_is_sent_whole_otherwise(device):
    q, norm = torch.randn(1, 2, 3, 4), torch.nn.BatchNorm2d(2).eval().to(device)
    with torch.no_grad():
        traced = make_fx(lambda a: norm(F.scaled_dot_product_attention(a, a, a)))(q.to(device))
        other = torch.randn(1, 2, 3, 4).to(device)
        same(traced(other), norm(F.scaled_dot_product_attention(other, other, other)).cpu())


def test_what_a_transform_hides_is_refused_in_words(device):
    x = torch.ones(3, device=device)

    def send(a):
        func = torch.ops.aten.sin.default
        return dispatch.send(plans.plan_of(func), (a,), {})

    with pytest.raises(OpNotAllowed, match=r"aten::sin is not available .* inside a transform of functions"):
        torch.func.vmap(send)(x)
