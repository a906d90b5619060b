"""torch's default dtype, which decides what factories make and what integers become, holds on the device as well."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
from executor_fixtures import executors
from inprocess_stream import InProcessStream

from dgsf.remoting.executor.local import LocalSpec
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.bound import bound
from dgsf.remoting.guest.session_stream import SessionStream
from tests.support.lossy_proxy import lossy_session

__all__ = ["executors"]


@pytest.fixture(autouse=True)
def _float32_after():
    yield
    torch.set_default_dtype(torch.float32)


@contextmanager
def default(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def made(device):
    """What depends on it, of each form: made anew, promoted from integers, and asked for."""
    whole = torch.arange(1, 4, device=device)
    return [
        torch.zeros(2, device=device),
        torch.empty(2, device=device).fill_(1 / 3),
        torch.linspace(0, 1, 3, device=device),
        torch.full((2,), 1 / 3, device=device),
        torch.arange(0, 1, 0.3, device=device),
        torch.eye(2, device=device),
        whole / 3,
        whole.sigmoid(),
        whole + 0.1,
        torch.atan2(whole, whole),
        torch.ldexp(whole, whole),
        whole[whole / 3 > 1 / 3] / 3,
    ]


def told(tensors):
    """Values, and what the device itself says of the dtypes."""
    dtypes = [bound.need().meta(each._h.id)[0] if each.device.type != "cpu" else each.dtype for each in tensors]
    return [(each.dtype, dtype, each.tolist()) for each, dtype in zip(tensors, dtypes, strict=True)]


def test_calls_of_two_default_dtypes_are_not_mixed(executors) -> None:
    wanted = {}
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        with default(dtype):
            wanted[dtype] = told(made("cpu"))
    stream = SessionStream(executors.connect(LocalSpec(device_options={"threads": 1})))
    with bind(stream) as device:
        for dtype in (torch.float32, torch.float64, torch.float32, torch.bfloat16, torch.float64):
            for _ in range(3):  # seen twice, they are replayed from a trace
                with default(dtype):
                    assert told(made(device)) == wanted[dtype]
    stream.close()


def test_a_default_set_before_attaching_holds(executors) -> None:
    torch.set_default_dtype(torch.float64)
    stream = SessionStream(executors.connect(LocalSpec(device_options={"threads": 1})))
    with bind(stream) as device:
        assert told(made(device)) == told(made("cpu"))
    stream.close()


def test_it_survives_the_loss_of_the_device(executors) -> None:
    with lossy_session(executors, LocalSpec(device_options={"threads": 1}), []) as proxy:
        stream = SessionStream(proxy.guest)
        with bind(stream) as device:
            whole = torch.arange(1, 4, device=device)
            (whole / 3).tolist()
            with default(torch.float64):
                first = whole / 3
                stream.checkpoint()
                (whole / 7).tolist()
                second = whole / 7
            third = whole / 7
            proxy.kill_now()
            with default(torch.float64):
                assert (first.tolist(), second.tolist()) == ([n / 3 for n in (1, 2, 3)], [n / 7 for n in (1, 2, 3)])
                assert told([whole / 7]) == told([torch.arange(1, 4) / 7])
            assert third.tolist() == (torch.arange(1, 4) / 7).tolist()
            assert stream.traffic["losses"] == 1
        stream.close()


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type:UserWarning")
def test_every_way_to_set_it_is_seen_and_none_is_left_behind(stream: InProcessStream) -> None:
    doors = torch._C._set_default_dtype, torch._C._set_default_tensor_type
    taken_before = torch.set_default_dtype
    ways = [
        (taken_before, torch.float64), (taken_before, torch.float32),
        (torch.set_default_tensor_type, torch.DoubleTensor), (torch.set_default_tensor_type, "torch.FloatTensor"),
    ]  # fmt: skip
    with bind(stream) as device:
        assert torch.zeros(1, device=device).dtype is torch.float32
        for change, kind in ways:
            change(kind)
            assert torch.zeros(1, device=device).cpu().dtype is torch.zeros(1).dtype
    assert doors == (torch._C._set_default_dtype, torch._C._set_default_tensor_type)
