"""Fake tensors and tracers while a device is attached: under either name they never end the process."""

from __future__ import annotations

import pytest
import torch
from inprocess_stream import InProcessStream
from remote_device import same
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from dgsf.remoting.guest.attach import bind

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "FutureWarning", "UserWarning")
]


@pytest.fixture(params=["", "cuda"])
def remote(request):
    with bind(InProcessStream(), alias=request.param) as device:
        yield device


class Shifted(torch.nn.Module):
    """Makes tensors by both words: another tensor's device, and the program's own name of it."""

    def __init__(self, name):
        super().__init__()
        self.inner, self.name = torch.nn.Linear(4, 2), name

    def forward(self, x):
        return self.inner(x) + torch.ones(2, device=x.device) + torch.zeros(2, device=self.name)


class Branching(torch.nn.Module):
    """Asks where its tensor is, in three ways."""

    def __init__(self, where):
        super().__init__()
        self.where = where

    def forward(self, x):
        there = x.is_cuda == (self.where.type == "cuda") and x.device.type == self.where.type
        return x * 2 if there and x.device == torch.device(self.where.type, 0) else x * 3


@pytest.mark.parametrize("mode", ["export", "real", "fake", "symbolic"])
def test_a_traced_program_hears_of_its_device_what_an_eager_one_hears(mode, remote):
    model, x = Branching(remote), torch.ones(2, device=remote)
    traced = torch.export.export(model, (x,)).module() if mode == "export" else make_fx(model, tracing_mode=mode)(x)
    same(traced(x), torch.full((2,), 2.0))


def test_a_module_on_the_device_is_exported(remote):
    model = Shifted(remote.type)
    expected = model.inner(torch.ones(3, 4)) + 1
    exported = torch.export.export(model.to(remote), (torch.ones(3, 4, device=remote),))
    same(exported.module()(torch.ones(3, 4, device=remote)), expected)


def test_a_fake_tensor_that_wants_a_gradient_is_used(remote):
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.ones(3, device=remote, requires_grad=True))
        (fake * 2 + torch.ones(3, device=remote.type)).sum().backward()
    assert fake.device == fake.grad.device == torch.device(remote.type, 0) and fake.grad.shape == (3,)


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_functions_are_traced(remote, mode):
    x = torch.arange(4.0, device=remote)
    graph = make_fx(lambda x: x * 2 + torch.ones(4, device=remote.type), tracing_mode=mode)(x)
    same(graph(x), torch.arange(4.0) * 2 + 1)


def test_a_function_traced_ahead_of_time_has_gradients(remote):
    from functorch.compile import aot_function

    x = torch.arange(4.0)
    traced = aot_function(lambda x: (x * 2).sin(), fw_compiler=lambda graph, inputs: graph)
    there = x.to(remote).requires_grad_()
    traced(there).sum().backward()
    same(there.grad, 2 * (2 * x).cos())


def test_fake_tensors_and_exports_of_the_cpu_are_as_ever(remote):
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.ones(3)).requires_grad_()
        fake.sum().backward()
    assert fake.device == fake.grad.device == torch.device("cpu")
    model = torch.nn.Linear(4, 2)
    exported = torch.export.export(model, (torch.ones(3, 4),))
    torch.testing.assert_close(exported.module()(torch.ones(3, 4)), model(torch.ones(3, 4)))


def test_cuda_is_what_it_was_to_fake_tensors_afterwards():
    before = FakeTensor.__dict__["_normalize_fake_device"]
    with bind(InProcessStream(), alias="cuda"):
        assert FakeTensor._normalize_fake_device(torch.device("cuda")) == torch.device("dgsf", 0)
        with pytest.raises(RuntimeError, match="only one remote device"):
            FakeTensor._normalize_fake_device(torch.device("cuda", 1))
    assert FakeTensor.__dict__["_normalize_fake_device"] is before
