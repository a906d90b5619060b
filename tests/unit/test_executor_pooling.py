"""Max pooling by channels is torch's own, bit for bit, only sooner."""

from __future__ import annotations

import pytest
import torch

from dgsf.remoting.executor.devices import Host
from dgsf.remoting.executor.pooling import by_channels

aten = torch.ops.aten
POOLS = {4: aten.max_pool2d_with_indices.default, 5: aten.max_pool3d_with_indices.default}
TURNED = {4: torch.channels_last, 5: torch.channels_last_3d}
LARGE = [(1, 16, 80, 80), (3, 48, 27, 31), (1, 608, 13, 13), (1, 32, 18, 18, 18), (2, 16, 9, 20, 33)]


class Seen:
    """Torch's kernel, and in which format it got its input."""

    def __init__(self, overload) -> None:
        self.overload, self.turned = overload, False

    def __call__(self, source, *args):
        self.turned = not source.is_contiguous()
        return self.overload(source, *args)


def pool(source, *args) -> bool:
    """Pool both ways and compare; whether the input was turned."""
    overload = POOLS[source.dim() if source.dim() in POOLS else source.dim() + 1]
    seen = Seen(overload)
    for found, expected in zip(by_channels(overload.name(), seen)(source, *args), overload(source, *args), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
        assert found.stride() == expected.stride()
        assert found.untyped_storage().nbytes() == expected.untyped_storage().nbytes()
    return seen.turned


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("sizes", LARGE)
@pytest.mark.parametrize("args", [(2, 2, 0, 1), (3, 2, 1, 1), (3, 1, 1, 2), (2, 3, 1, 1)])
@pytest.mark.parametrize("ceil", [False, True])
def test_values_and_places_are_the_same(sizes, args, ceil) -> None:
    dims = len(sizes) - 2
    kernel, stride, padding, dilation = ([each] * dims for each in args)
    assert pool(torch.randn(sizes), kernel, stride, padding, dilation, ceil)


@pytest.mark.parametrize("sizes", LARGE)
def test_so_are_those_of_equals_and_of_what_is_no_number(sizes) -> None:
    dims = len(sizes) - 2
    args = ([3] * dims, [2] * dims, [1] * dims, [1] * dims, False)
    equals = torch.randint(0, 2, sizes).float()
    assert pool(equals, *args) and pool(torch.zeros(sizes), *args) and pool(-torch.zeros(sizes), *args)
    strange = torch.tensor((float("nan"), float("inf"), float("-inf"), -0.0, 0.0))
    assert pool(strange[torch.randint(0, 5, sizes)], *args)
    assert pool(torch.full(sizes, float("-inf")), *args) and pool(torch.full(sizes, float("nan")), *args)


def test_what_is_small_or_laid_out_otherwise_is_left_to_torch() -> None:
    two = ([2, 2], [2, 2])
    large = torch.randn(1, 16, 80, 80)
    assert pool(large, *two)
    assert not pool(torch.randn(1, 16, 8, 8), *two)
    assert not pool(torch.randn(1, 3, 200, 200), *two)
    assert not pool(torch.randn(1, 20, 80, 80), *two)
    assert not pool(torch.randn(0, 16, 80, 80), *two)
    assert not pool(large[0], *two)
    by_channels(POOLS[4].name(), POOLS[4])(large.double(), *two)
    for source in (large.contiguous(memory_format=TURNED[4]), large[..., ::2], large.transpose(2, 3)):
        pool(source, *two)


def test_the_way_back_finds_its_places() -> None:
    source = torch.randn(2, 16, 60, 60)
    bound = Host(torchs_choice=False).bind(POOLS[4], POOLS[4].name())
    args = ([3, 3], [2, 2], [1, 1], [1, 1], False)
    values, places = bound(source, *args)
    found = aten.max_pool2d_with_indices_backward(torch.ones_like(values), source, *args, places)
    source.requires_grad_()
    torch.nn.functional.max_pool2d(source, 3, 2, 1).sum().backward()
    assert torch.equal(found, source.grad)


def test_errors_are_torchs() -> None:
    large = torch.randn(1, 16, 80, 80)
    for args in (([2, 2], [0, 0]), ([2, 2], [2, 2], [2, 2]), ([200, 200],), ([2, 2, 2],)):
        told = []
        for call in (POOLS[4], by_channels(POOLS[4].name(), POOLS[4])):
            with pytest.raises(RuntimeError) as raised:
                call(large, *args)
            told.append(str(raised.value))
        assert told[0] == told[1]


def test_a_device_that_leaves_the_choice_to_torch_does() -> None:
    assert Host().bind(POOLS[5], POOLS[5].name()) is POOLS[5]._op
