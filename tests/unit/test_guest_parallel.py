"""DataParallel and its kin over one remote device do what the module alone does."""

import pytest
import torch
from inprocess_stream import InProcessStream
from remote_device import same
from torch import nn

from dgsf.remoting.guest.attach import bind


@pytest.fixture(params=["dgsf", "cuda"])
def name(request):
    stream = InProcessStream()
    with bind(stream, alias="cuda" if request.param == "cuda" else ""):
        yield request.param
    stream.close()


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("offset", torch.ones(2))

    def forward(self, x, *, scale=1.0, more=()):
        return {"out": self.linear(x) * scale + self.offset + sum(more)}


def test_a_module_over_all_devices_is_the_module_itself(name):
    alone, x = Scaled(), torch.randn(3, 2)
    expected = alone(x, scale=2.0, more=[x])["out"].detach()
    model = nn.DataParallel(alone)
    out = model(x, scale=2.0, more=[x.to(name)])["out"]
    same(out, expected)
    out.sum().backward()
    same(model.module.linear.bias.grad, torch.full((2,), 6.0))


def test_the_function_does_the_same(name):
    module, x = nn.Linear(2, 2), torch.randn(3, 2)
    expected = module(x).detach()
    same(nn.parallel.data_parallel(module.to(name), x.to(name), [0]), expected)
    same(nn.parallel.data_parallel(module, x), expected)


def test_a_replica_has_the_gradients_of_its_module(name):
    module = Scaled().to(name)
    (replica,) = nn.parallel.replicate(module, [0])
    (batch,) = nn.parallel.scatter(torch.ones(3, 2), [0])
    (out,) = nn.parallel.parallel_apply([replica], [batch])
    nn.parallel.gather([out["out"]], 0).sum().backward()
    same(module.linear.bias.grad, torch.full((2,), 3.0))


def test_a_second_device_is_refused(name):
    with pytest.raises(RuntimeError, match="only one remote device"):
        nn.DataParallel(nn.Linear(2, 2).to(name), device_ids=[0, 1])(torch.ones(2, 2))
