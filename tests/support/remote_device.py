"""The guest's device over an in-process stream, for tests of tensor semantics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from inprocess_stream import InProcessStream

from dgsf.remoting.guest.attach import bind


@pytest.fixture
def stream() -> Iterator[InProcessStream]:
    stream = InProcessStream()
    yield stream
    stream.close()


@pytest.fixture
def device(stream: InProcessStream) -> Iterator[torch.device]:
    with bind(stream) as device:
        yield device


def same(remote: torch.Tensor, local: torch.Tensor) -> None:
    """The remote tensor has the local one's values, type, sizes and strides."""
    assert remote.device.type != "cpu"
    torch.testing.assert_close(remote.detach().cpu(), local.detach())
