"""The sample workloads on a remote device, without the platform: the same results as on the CPU beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from dgsf.core.checkpointing import CheckpointPolicy
from dgsf.remoting.executor.local import LocalExecutors, LocalSpec
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.lazy import LazyStream
from dgsf.remoting.guest.modes import parse_modes
from dgsf.remoting.guest.session_stream import SessionStream
from functions.models.recurrent import LstmClassifier
from functions.models.resnet import resnet18
from functions.models.seeded import random_tensor, seeded
from functions.models.transformer import Gpt
from functions.workloads import bert_qa, ct_scan, face_detection, face_identification, kmeans, resnet50

pytestmark = pytest.mark.timeout(300)
CPU = torch.device("cpu")
CASES = {
    "kmeans": (kmeans.run, (500, 4, 5, 6, 1)),
    "ct_scan": (ct_scan.run, (6, 16, 0)),
    "face_detection": (face_detection.run, (5, 64, 0.3, 0)),
    "face_identification": (face_identification.run, (3, 8, 0.2, 0)),
    "bert_qa": (bert_qa.run, ("What does it share?", bert_qa.TEXT, "tiny")),
    "resnet50": (resnet50.run, (1, 64, 0)),
}


@pytest.fixture(scope="module", params=["full", "naive"])
def device(request: Any, tmp_path_factory: Any) -> Iterator[torch.device]:
    """A device of one executor process, for all workloads in a row, as in one long-lived worker."""
    contents = str(tmp_path_factory.mktemp("contents"))
    with LocalExecutors() as executors, executors.connect(LocalSpec(contents=contents)) as sock:
        modes = parse_modes(request.param)
        stream = LazyStream(lambda freed: SessionStream(sock, modes, CheckpointPolicy(), freed=freed))
        with bind(stream) as found:
            yield found
            stream.close()
    for module in (ct_scan, face_detection, face_identification, bert_qa, resnet50):
        module.network.cache_clear()  # their tensors ended with the session
    face_identification.gallery.cache_clear()


@pytest.mark.parametrize("name", CASES)
def test_a_workload_gives_the_same_near_and_remote(device: torch.device, name: str) -> None:
    run, arguments = CASES[name]
    expected = run(CPU, *arguments)
    for _ in range(3):  # the later ones are replayed
        same(run(device, *arguments), expected)


def same(found: Any, expected: Any) -> None:
    """Equal; numbers within torch's own tolerances."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            same(found[key], value)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for left, right in zip(found, expected, strict=True):
            same(left, right)
    elif isinstance(expected, float):
        torch.testing.assert_close(found, expected, rtol=1.3e-6, atol=1e-5)
    else:
        assert found == expected


def trained(device: torch.device, steps: int = 3) -> list[float]:
    """Losses of a small GPT in training."""
    model = seeded(lambda: Gpt(words=64, length=32, width=32, layers=2, heads=2), 1).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(64, (4, 32), generator=torch.Generator().manual_seed(2)).to(device)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model.loss(tokens)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_small_gpt_trains_the_same(device: torch.device) -> None:
    same(trained(device), trained(CPU))


def inferred(device: torch.device) -> list[Any]:
    lstm = seeded(lambda: LstmClassifier(8, 16), 3).eval().to(device)
    residual = seeded(lambda: resnet18(10), 4).eval().to(device)
    with torch.inference_mode():
        return [
            lstm(random_tensor(5, 2, 6, 8).to(device)).tolist(),
            residual(random_tensor(6, 2, 3, 32, 32).to(device)).tolist(),
        ]


def test_an_lstm_and_a_resnet_infer_the_same(device: torch.device) -> None:
    same(inferred(device), inferred(CPU))
