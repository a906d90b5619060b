"""A training on a remote device whose executor is killed twice ends with the very numbers of an undisturbed one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from dgsf.core.checkpointing import CheckpointPolicy
from dgsf.remoting.executor.local import LocalExecutors, LocalSpec
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.session_stream import SessionStream
from tests.support.lossy_proxy import LossyProxy, lossy_session

STEPS = 14
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (
        lambda: nn.Sequential(
            nn.Linear(16, 256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4)
        ),
        (32, 16),
    ),
    "volumes": (  # convolution and pooling by kernels that are not torch's choice
        lambda: nn.Sequential(
            nn.Conv3d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2), nn.Conv3d(16, 16, 3), nn.ReLU(),
            nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(16, 4),
        ),
        (1, 1, 20, 20, 20),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def executors() -> Iterator[LocalExecutors]:
    with LocalExecutors() as found:
        yield found


def train(
    device: torch.device, proxy: LossyProxy, stream: SessionStream, name: str, kills: set[int], saves: set[int]
) -> list[float]:
    torch.manual_seed(3)
    make, sizes = MODELS[name]
    model = make().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(STEPS):
        inputs = torch.randn(sizes, generator=torch.Generator().manual_seed(step)).to(device)
        targets = (torch.arange(sizes[0]) % 4).to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        if step in kills:
            proxy.kill_now()
        if step in saves:
            stream.checkpoint()
        optimizer.step()
        if step % 2:
            losses.append(loss.item())
    return [*losses, *[parameter.detach().sum().item() for parameter in model.parameters()]]


def outcome(executors: LocalExecutors, name: str, kills: set[int], saves: set[int]) -> tuple[list[float], int]:
    spec = LocalSpec(device_options={"threads": 1})
    with lossy_session(executors, spec, []) as proxy:
        stream = SessionStream(proxy.guest, policy=CheckpointPolicy(replay_seconds=0.05, share=0.5))
        with bind(stream) as device:
            seen = train(device, proxy, stream, name, kills, saves)
        stream.close()
        return seen, stream.traffic["losses"]


@pytest.mark.parametrize("name", MODELS)
def test_a_training_survives_the_loss_of_its_devices(executors: LocalExecutors, name: str) -> None:
    undisturbed, none = outcome(executors, name, set(), set())
    for kills, saves in (({0, 6}, set()), ({3, 9}, {2, 8}), ({11}, {10, 11})):
        disturbed, losses = outcome(executors, name, kills, saves)
        assert disturbed == undisturbed
        assert (none, losses) == (0, len(kills))
