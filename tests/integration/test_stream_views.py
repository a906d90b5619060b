"""Conjugated views, stopped gradients and padding over a real session: equal to the CPU, also after a lost device."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional

from dgsf.remoting.executor.local import LocalExecutors, LocalSpec
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.modes import parse_modes
from dgsf.remoting.guest.session_stream import SessionStream
from tests.support.lossy_proxy import lossy_session

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # nested tensors are in prototype stage
SPEC = LocalSpec(device_options={"threads": 1})


@pytest.fixture(scope="module")
def executors() -> Iterator[LocalExecutors]:
    with LocalExecutors() as found:
        yield found


@pytest.fixture(params=["full", "naive", "full,-elements"])
def device(executors: LocalExecutors, request: pytest.FixtureRequest) -> Iterator[torch.device]:
    stream = SessionStream(executors.connect(SPEC), parse_modes(request.param))
    with bind(stream) as device:
        yield device
    stream.close()


class Stop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone()

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> None:
        return None


def steps(x: torch.Tensor) -> list[torch.Tensor]:
    """Writes and reads through lazy views, often enough to be replayed by number."""
    views = [x.conj(), x.mH, x.conj().imag, x.conj()[1:]]
    for step in range(6):
        x.mul_(1.5 + 0.5j)
        views[0][0, 1] = step + 2j
        views[1].add_(1j)
        views[2].mul_(-1)
        views[3].copy_(views[3].t().conj()[:1] * 0.5)
    return [x, *views, x.mH @ x, views[0].sum()]


def begun(device: torch.device | str) -> torch.Tensor:
    return torch.tensor([[1 + 2j, 3 + 4j], [5 - 1j, -2j]], device=device)


def test_lazy_views_are_as_on_the_cpu(device: torch.device) -> None:
    for local, remote in zip(steps(begun("cpu")), steps(begun(device)), strict=True):
        torch.testing.assert_close(remote.cpu(), local.resolve_conj().resolve_neg())
        assert remote.tolist() == local.tolist()


def test_lazy_views_are_views_still_after_the_device_was_lost(executors: LocalExecutors) -> None:
    x = begun("cpu")
    expected = [each.clone() for each in (x.mH, x.conj().imag)]
    with lossy_session(executors, SPEC, []) as proxy:
        stream = SessionStream(proxy.guest)
        with bind(stream) as device:
            remote = begun(device)
            views = [remote.mH, remote.conj().imag]
            stream.checkpoint()
            proxy.kill_now()
            for view, local in zip(views, expected, strict=True):
                assert torch.equal(view.cpu(), local)
            views[0].mul_(2)
            assert torch.equal(remote.cpu(), 2 * x)
            assert torch.equal(views[1].cpu(), 2 * expected[1])
        stream.close()


def test_a_stopped_gradient_costs_nobody_the_session(device: torch.device) -> None:
    other = torch.ones(3, device=device)
    x = torch.ones(1, 1, 2, 4, device=device, requires_grad=True)
    heads = nn.MultiheadAttention(4, 2).to(device)
    made = [functional.scaled_dot_product_attention(x, x, x), x @ x.mT, heads(x[0], x[0], x[0])[0]]
    (sum(Stop.apply(each).sum() for each in made) + x.sum()).backward()
    assert x.grad is not None and x.grad.sum().item() == 8
    assert other.sum().item() == 3


def test_an_encoder_gives_zeros_for_padding(device: torch.device) -> None:
    local = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    x, mask = torch.rand(2, 4, 8), torch.tensor([[0, 0, 1, 1], [0, 0, 0, 0]]).bool()
    remote = copy.deepcopy(local).to(device)
    with torch.no_grad():
        for _ in range(4):
            found = remote(x.to(device), src_key_padding_mask=mask.to(device))
        torch.testing.assert_close(found.cpu(), local(x, src_key_padding_mask=mask))
