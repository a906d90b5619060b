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


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_drops_the_same_values_twice(name, reentrant):
    x = torch.ones(1000, device=name, requires_grad=True)
    out = checkpoint(lambda part: F.dropout(part, 0.5), x, use_reentrant=reentrant)
    out.sum().backward()
    assert torch.equal(x.grad.cpu(), out.detach().cpu())
