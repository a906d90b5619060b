"""What a program let go of is let go of on the device, too, whatever was lost in between."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dgsf.core.checkpointing import CheckpointPolicy
from dgsf.remoting.executor.local import LocalExecutors, LocalSpec
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.modes import FULL
from dgsf.remoting.guest.session_stream import SessionStream
from tests.support.lossy_proxy import lossy_sessions

BATCH = 64 * 784 * 4


@pytest.fixture(scope="module")
def executors() -> Iterator[LocalExecutors]:
    with LocalExecutors() as found:
        yield found


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Only references count: the collector may come any time later, while the device is short of memory."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def work(weights: torch.Tensor, steps: int) -> float:
    total = 0.0
    for number in range(steps):
        total += step(weights, torch.full((64, 784), float(number)).to("dgsf"))
    return total


def step(weights: torch.Tensor, batch: torch.Tensor) -> float:
    return float((batch @ weights).sum().item())


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("kills", [[], [9, 7], [-9, None], [-6, -6, 5]], ids=str)
def test_no_batch_stays_behind_when_its_device_or_proxy_is_lost(
    executors: LocalExecutors, tmp_path: Path, kills: list[int | None]
) -> None:
    spec = LocalSpec(contents=str(tmp_path), device_options={"threads": 1})
    policy = CheckpointPolicy(replay_seconds=1e9, share=0.0)
    with lossy_sessions(executors, spec, kills) as proxies:
        stream = SessionStream(proxies.guest, FULL, policy, reopen=proxies.reopen)
        with bind(stream):
            weights = torch.full((784, 4), 0.5).to("dgsf")
            work(weights, 12)
            assert stream.traffic["losses"] == len([at for at in kills if at is not None])
            assert stream.memory()[0] == weights.nbytes
            del weights
        stream.close()
