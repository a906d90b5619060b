"""Reading a few elements of a large remote tensor brings these here, not the tensor."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from dgsf.remoting.executor.local import LocalExecutors, LocalSpec
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.modes import parse_modes
from dgsf.remoting.guest.session_stream import SessionStream


@pytest.fixture(scope="module")
def executors() -> Iterator[LocalExecutors]:
    with LocalExecutors() as found:
        yield found


@contextmanager
def attached(executors: LocalExecutors, modes: str = "full,-survival") -> Iterator[tuple[torch.device, SessionStream]]:
    stream = SessionStream(executors.connect(LocalSpec(device_options={"threads": 1})), parse_modes(modes))
    try:
        with bind(stream) as device:
            yield device, stream
    finally:
        stream.close()


def shown(tensor: torch.Tensor) -> list[str]:
    """As it is printed, but for where it is."""
    return re.sub(r",\s+device='dgsf:0'", "", repr(tensor)).split()


LARGE = torch.arange(600_000.0).reshape(600, 1000)
READS: list[Callable[[torch.Tensor], object]] = [
    lambda x: x[3, 5].item(),
    lambda x: x[0, :4].tolist(),
    lambda x: x[:, 7][-1].cpu().item(),
    lambda x: float(x.t()[9, 2]),
    lambda x: shown(x),
    lambda x: shown(x[5]),
]


@pytest.mark.parametrize("read", READS)
def test_what_is_read_is_what_is_brought(executors: LocalExecutors, read: Callable[[torch.Tensor], object]) -> None:
    with attached(executors) as (device, stream):
        x = LARGE.to(device)
        before = stream.traffic["bytes_in"]
        assert read(x) == read(LARGE)
        assert stream.traffic["bytes_in"] - before < 8192


@pytest.mark.parametrize("read", READS)
def test_switched_off_the_whole_is_brought(executors: LocalExecutors, read: Callable[[torch.Tensor], object]) -> None:
    with attached(executors, "full,-survival,-elements") as (device, stream):
        x = LARGE.to(device)
        before = stream.traffic["bytes_in"]
        assert read(x) == read(LARGE)
        assert stream.traffic["bytes_in"] - before > LARGE.nbytes


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(1001),
        torch.randn(7, 200),
        torch.randn(2, 6, 8, 300),
        torch.randn(3000, 1, dtype=torch.float64) * 1e6,
        torch.randint(-9, 9, (40, 40)),
        torch.rand(2000) > 0.5,
        torch.randn(50, 50, dtype=torch.complex64),
        torch.tensor([float("nan"), float("inf"), 1e-9] * 700).reshape(3, 700),
        torch.randn(60, 60).to(torch.bfloat16),
        torch.randn(60, 60).to(torch.float8_e4m3fn),
        torch.zeros(0, 5000),
        torch.randn(6, 6, 6, 6)[:, :, ::2],
    ],
)
def test_large_tensors_print_as_they_do_on_the_cpu(executors: LocalExecutors, tensor: torch.Tensor) -> None:
    with attached(executors) as (device, _):
        remote = tensor.to(device)
        for options in ({}, {"edgeitems": 1}, {"edgeitems": 0}, {"threshold": 10, "linewidth": 50}):
            with torch._tensor_str.printoptions(**options):
                assert shown(remote) == shown(tensor)
        assert torch._tensor_str.PRINT_OPTS.threshold == 1000
