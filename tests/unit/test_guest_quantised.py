"""Quantised tensors stay on the CPU, and whoever moves one hears so in a sentence."""

from __future__ import annotations

import pytest
import torch

from dgsf.errors import OpNotAllowed

pytestmark = pytest.mark.filterwarnings("ignore")  # torch is about to part with them


def _whole():
    return torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)


def _by_channel():
    return torch.quantize_per_channel(torch.ones(2, 2), torch.tensor([0.1, 0.2]), torch.tensor([0, 0]), 0, torch.qint8)


@pytest.mark.parametrize(
    "move",
    [
        lambda device: _whole().to(device),
        lambda device: _by_channel().to(device),
        lambda device: torch.empty(2, dtype=torch.qint8, device=device),
        lambda device: torch.empty_quantized([2], _whole(), device=device),
        lambda device: torch._empty_affine_quantized([2], scale=0.1, zero_point=0, dtype=torch.qint8, device=device),
    ],
)
def test_moving_one_is_refused_in_a_sentence(move, device):
    with pytest.raises(
        OpNotAllowed, match=r"quantised tensors cannot live on a remote device: .*dequantize\(\)"
    ) as told:
        move(device)
    assert len(str(told.value)) < 200


def test_those_of_the_cpu_are_as_ever(device):
    assert _whole().dequantize().tolist() == pytest.approx([1, 1])
    assert torch.ones(2, device=device).add(_whole().dequantize().to(device)).tolist() == pytest.approx([2, 2])
