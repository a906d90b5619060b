"""Tensors that the device can never hold: refused at their line, before anything is asked of the device."""

from __future__ import annotations

from collections import deque

import pytest
import torch
from inprocess_stream import LEASE, InProcessStream
from remote_device import same

import dgsf
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.lazy import LazyStream

TOO_MANY = LEASE // 4 + 1  # floats
SIDE = 20_000


@pytest.mark.parametrize(
    "make",
    [
        lambda device, row: torch.empty(TOO_MANY, device=device),
        lambda device, row: torch.zeros(TOO_MANY, device=device),
        lambda device, row: torch.randn(TOO_MANY, device=device),
        lambda device, row: torch.empty_strided((2, 2), (TOO_MANY, 1), device=device),
        lambda device, row: torch.empty(1, 8, TOO_MANY // 8, 2, memory_format=torch.channels_last, device=device),
        lambda device, row: row.new_full((TOO_MANY,), 1.0),
        lambda device, row: row.t() @ row,
        lambda device, row: row.t() + row,
        lambda device, row: row.expand(SIDE, SIDE).clone(),
        lambda device, row: torch.add(row.t(), row, out=torch.empty(0, device=device)),
        lambda device, row: torch.empty(0, device=device).resize_(TOO_MANY),
        lambda device, row: torch.nn.Linear(SIDE, SIDE, device=device),
    ],
)
def test_a_tensor_larger_than_the_whole_lease_is_refused_at_its_line(make, device, stream):
    row = torch.ones(1, SIDE, device=device)
    with pytest.raises(
        dgsf.DeviceOutOfMemory, match=r"a tensor of [12]\.\d GiB .* is larger than .* 1\.0 GiB"
    ) as caught:
        make(device, row)
    assert isinstance(caught.value, torch.OutOfMemoryError)
    assert sum(tensor.untyped_storage().nbytes() for tensor in stream.tensors.values()) < LEASE // 2
    same(row[0, :3], torch.ones(3))  # the session goes on


def test_views_need_no_memory_and_may_look_larger(device):
    row = torch.ones(1, SIDE, device=device)
    assert row.expand(SIDE, SIDE).shape == (SIDE, SIDE)
    assert torch.empty_strided((SIDE, SIDE), (0, 1), device=device).numel() == SIDE * SIDE
    assert torch.empty(0, TOO_MANY, TOO_MANY, device=device).numel() == 0


def test_a_function_that_has_asked_for_little_has_no_device_opened_for_that():
    opened: list[InProcessStream] = []

    def opener(_freed: deque[int]) -> InProcessStream:
        opened.append(InProcessStream())
        return opened[-1]

    with bind(LazyStream(opener)) as device:
        torch.empty(16, device=device)
        assert not opened
        with pytest.raises(dgsf.DeviceOutOfMemory):
            torch.empty(TOO_MANY, device=device)
    opened[0].close()
