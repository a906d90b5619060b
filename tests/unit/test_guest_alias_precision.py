"""Under the alias, torch knows that autocast is on and repeats a checkpoint's forward pass with the same dropout."""

import pytest
import torch
import torch.nn.functional as F
from inprocess_stream import InProcessStream
from torch.utils.checkpoint import checkpoint

from dgsf.remoting.guest.attach import bind

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")


class OwnNumbers(InProcessStream):
    """Draws its random numbers from a state of its own, as a device does that is elsewhere."""

    def __init__(self):
        super().__init__()
        self._state = torch.Generator().manual_seed(7).get_state()

    def _run(self, *call):
        here = torch.default_generator.get_state()
        torch.default_generator.set_state(self._state)
        try:
            return super()._run(*call)
        finally:
            self._state = torch.default_generator.get_state()
            torch.default_generator.set_state(here)

    def seed(self, seed):
        self._state = torch.Generator().manual_seed(seed).get_state()

    def rng_state(self):
        return self._state.clone()

    def set_rng_state(self, state):
        self._state = state.clone()


@pytest.fixture(params=["dgsf", "cuda"])
def name(request):
    stream = OwnNumbers()
    with bind(stream, alias="cuda" if request.param == "cuda" else ""):
        yield request.param
    stream.close()


@pytest.fixture
def aliased():
    stream = InProcessStream()
    with bind(stream, alias="cuda") as device:
        yield device
    stream.close()


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_drops_the_same_values_twice(name, reentrant):
    x = torch.ones(1000, device=name, requires_grad=True)
    out = checkpoint(lambda part: F.dropout(part, 0.5), x, use_reentrant=reentrant)
    out.sum().backward()
    assert torch.equal(x.grad.cpu(), out.detach().cpu())


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_is_computed_again_in_the_same_precision(name, reentrant):
    model, seen = torch.nn.Linear(8, 8).to(name), []

    def part(x):
        out = model(x)
        seen.append(out.dtype)
        return out.sin()  # torch stops as soon as it has the last value that it needs

    x = torch.rand(4, 8, device=name, requires_grad=True)
    with torch.autocast(name, dtype=torch.bfloat16):
        out = checkpoint(part, x, use_reentrant=reentrant)
    out.float().sum().backward()
    assert seen == [torch.bfloat16] * 2


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_on_the_cpu_is_none_of_the_devices_business(name, reentrant):
    x = torch.ones(1000, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = checkpoint(lambda part: F.dropout(part, 0.5), x, use_reentrant=reentrant)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


def test_autocast_says_that_it_is_on(aliased):
    assert not torch.is_autocast_enabled() and not torch.is_autocast_enabled("cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert torch.is_autocast_enabled() and torch.is_autocast_enabled("cuda")
        assert torch.get_autocast_dtype("cuda") is torch.get_autocast_gpu_dtype() is torch.bfloat16
        assert not torch.is_autocast_enabled("cpu")
        with torch.autocast("cuda", enabled=False):
            assert not torch.is_autocast_enabled()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.is_autocast_enabled("cpu") and not torch.is_autocast_enabled()


def test_autocast_is_switched_by_hand(aliased):
    model, x = torch.nn.Linear(2, 2).cuda(), torch.ones(1, 2).cuda()
    for switch in (torch.set_autocast_enabled, lambda on: torch.set_autocast_enabled("cuda", on)):
        switch(True)
        torch.set_autocast_gpu_dtype(torch.bfloat16)
        assert model(x).dtype is torch.bfloat16
        torch.set_autocast_dtype("cuda", torch.float16)
        assert model(x).dtype is torch.float16
        switch(False)
        assert model(x).dtype is torch.float32


def test_a_custom_function_casts_its_inputs(aliased):
    class Twice(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, gradient):
            assert not torch.is_autocast_enabled()
            return gradient * 2

    x = torch.ones(2, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = Twice.apply(x)
    assert out.dtype is torch.float32
    out.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_afterwards_torch_asks_for_the_real_cuda_again():
    before = torch.is_autocast_enabled, torch.get_autocast_dtype, torch.set_autocast_enabled, torch.cuda._initialized
    with bind(InProcessStream(), alias="cuda"):
        assert torch.cuda._initialized
    now = torch.is_autocast_enabled, torch.get_autocast_dtype, torch.set_autocast_enabled, torch.cuda._initialized
    assert now == before
