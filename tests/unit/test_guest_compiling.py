"""`torch.compile` while a device is attached: CPU code is compiled as ever, what touches the device runs as written."""

from __future__ import annotations

import pytest
import torch
from inprocess_stream import InProcessStream
from remote_device import same

from dgsf.remoting.guest.attach import bind

# torch warns of its own past, and of what it leaves out of graphs
pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "UserWarning")]


class Backend:
    """Counts the graphs that it was given."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, graph, inputs):
        self.graphs += 1
        return graph.forward

    def take(self):
        graphs, self.graphs = self.graphs, 0
        return graphs


@pytest.fixture
def backend():
    return Backend()


@pytest.fixture(params=["", "cuda"])
def remote(request):
    with bind(InProcessStream(), alias=request.param) as device:
        yield device


held: list[torch.Tensor] = []


def _of_a_helper(x):
    return x * held[0]


def test_cpu_code_is_compiled_and_the_same_function_runs_as_written_on_the_device(remote, backend):
    double = torch.compile(lambda x: x * 2, backend=backend)
    assert double(torch.ones(2)).tolist() == [2, 2] and backend.take() == 1
    same(double(torch.ones(2, device=remote)), torch.full((2,), 2.0))
    same(double(torch.ones(3, device=remote)), torch.full((3,), 2.0))
    double(torch.ones(2))
    assert backend.take() == 0


def test_functions_of_before_and_of_meanwhile_are_compiled_afterwards(backend):
    before = torch.compile(lambda x: x + 1, backend=backend)
    with bind(InProcessStream()) as device:
        meanwhile = torch.compile(lambda x: x + 2, backend=backend)
        same(before(torch.ones(2, device=device)), torch.full((2,), 2.0))
        same(meanwhile(torch.ones(2, device=device)), torch.full((2,), 3.0))
        assert backend.take() == 0
        before(torch.ones(2))
        assert backend.take() == 1
    before(torch.ones(2)), meanwhile(torch.ones(2))
    assert backend.take() == 1
    before(torch.ones(2, 2)), meanwhile(torch.ones(2, 2))
    assert backend.take() == 2


def test_a_module_is_compiled_where_its_parameters_are_here(remote, backend):
    model = torch.nn.Linear(2, 2)
    expected, compiled = model(torch.ones(1, 2)), torch.compile(model, backend=backend)
    compiled(torch.ones(1, 2))
    assert backend.take() == 1
    same(compiled.to(remote)(torch.ones(1, 2, device=remote)), expected)
    assert backend.take() == 0
    torch.testing.assert_close(compiled.cpu()(torch.ones(1, 2)), expected)


def test_a_whole_graph_that_is_asked_for_is_not_missed_on_the_device(remote, backend):
    double = torch.compile(lambda x: x * 2, backend=backend, fullgraph=True)
    same(double(torch.ones(2, device=remote)), torch.full((2,), 2.0))
    double(torch.ones(2))
    assert backend.take() == 1


def test_tensors_on_the_device_are_found_behind_the_arguments(remote, backend):
    held[:] = [torch.full((2,), 3.0, device=remote)]
    kept = held[0]
    for function in (lambda x: x * kept, _of_a_helper, lambda x: _of_a_helper(x) * 1):
        same(torch.compile(function, backend=backend)(2.0), torch.full((2,), 6.0))
    optimizer = torch.optim.SGD([kept.requires_grad_()], lr=1.0)
    kept.grad = torch.ones_like(kept)
    torch.compile(optimizer.step, backend=backend)()
    same(kept.detach(), torch.full((2,), 2.0))
    held.clear()
    assert backend.take() == 0


def test_a_graph_that_goes_to_the_device_by_itself_is_run_as_it_is(remote):
    """torch's own compiler does not know the device."""
    name = remote.type
    same(torch.compile(lambda x: x.to(name) * 2)(torch.ones(2)), torch.full((2,), 2.0))
    same(torch.compile(lambda x: torch.ones(2, device=name) + x.sum())(torch.ones(2)), torch.full((2,), 3.0))
