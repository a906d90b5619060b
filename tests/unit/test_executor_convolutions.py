"""Convolutions by oneDNN are torch's own, only sooner: values, sizes, strides, errors; and always the same bits."""

from __future__ import annotations

import math

import pytest
import torch
from executor_fixtures import connect, executors
from hypothesis import given
from hypothesis import strategies as st

from dgsf.remoting.executor.convolutions import by_onednn, pays
from dgsf.remoting.executor.opening import open_device
from dgsf.remoting.protocol import TENSOR, Record

__all__ = ["connect", "executors"]
CONVOLUTION = torch.ops.aten.convolution.default
NAME = CONVOLUTION.name()
pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch is without oneDNN")
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


class Plain:
    """Torch's kernel, and how often it was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, *args):
        self.calls += 1
        return CONVOLUTION._op(*args)


def weights(*sizes: int) -> torch.Tensor:
    """As modules begin with: results are about as large as the input."""
    return torch.randn(sizes) / math.sqrt(max(1, math.prod(sizes[1:])))


def attributes(dims: int, stride: int = 1, padding: int = 1, dilation: int = 1, groups: int = 1) -> tuple:
    return ([stride] * dims, [padding] * dims, [dilation] * dims, False, [0] * dims, groups)


def convolve(source, weight, bias, rest) -> bool:
    """Do it both ways and compare; whether torch's own kernel was called."""
    plain = Plain()
    found = by_onednn(NAME, plain)(source, weight, bias, *rest)
    expected = CONVOLUTION(source, weight, bias, *rest)
    torch.testing.assert_close(found, expected)
    assert found.stride() == expected.stride()
    assert found.untyped_storage().nbytes() == expected.untyped_storage().nbytes()
    return bool(plain.calls)


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with more of them torch itself takes oneDNN more often
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("source", "weight", "rest"),
    [
        ((1, 1, 24, 24, 24), (8, 1, 3, 3, 3), attributes(3)),
        ((1, 8, 12, 12, 12), (8, 8, 3, 3, 3), attributes(3, dilation=2, padding=2)),
        ((1, 8, 16, 16, 16), (8, 8, 3, 3, 3), attributes(3, stride=2)),
        ((4, 16, 6, 12, 12), (16, 16, 3, 1, 1), ([1] * 3, [1, 0, 0], [1] * 3, False, [0] * 3, 1)),
    ],
)
def test_what_torch_would_unfold_is_done_by_onednn(source, weight, rest, bias) -> None:
    tensors = torch.randn(source), weights(*weight)
    assert not convolve(*tensors, torch.randn(weight[0]) if bias else None, rest)


@pytest.mark.parametrize(
    ("source", "weight", "rest"),
    [
        ((1, 2, 4, 4, 4), (2, 2, 3, 3, 3), attributes(3)),  # little to do
        ((1, 64, 16, 16, 16), (64, 64, 1, 1, 1), attributes(3, padding=0)),  # nothing to unfold
        ((0, 8, 16, 16, 16), (8, 8, 3, 3, 3), attributes(3)),
        ((1, 8, 16, 16, 16), (8, 1, 3, 3, 3), attributes(3, groups=8)),
        ((1, 512, 7, 7), (512, 512, 1, 1), attributes(2, padding=0)),  # images: near functions get the very same bits
        ((1, 128, 12, 12), (128, 128, 3, 3), attributes(2)),
        ((1, 3, 64, 64), (64, 3, 3, 3), attributes(2)),
        ((1, 64, 300), (64, 64, 3), attributes(1)),
        ((1, 8, 16, 16, 16), (8, 8, 3, 3, 3), ([2] * 3, [1] * 3, [1] * 3, True, [1] * 3, 1)),  # transposed
    ],
)
def test_where_torch_is_as_quick_or_images_are_meant_its_kernel_stays(source, weight, rest) -> None:
    assert convolve(torch.randn(source), weights(*weight), None, rest)


def test_other_types_and_tensors_without_values_are_torchs() -> None:
    source, weight = torch.randn(1, 8, 16, 16, 16), weights(8, 8, 3, 3, 3)
    assert convolve(source.double(), weight.double(), None, attributes(3))
    assert convolve(torch._efficientzerotensor(source.shape), weight, None, attributes(3))
    assert not convolve(source, weight, None, attributes(3))


def test_batches_that_torch_gives_to_onednn_are_the_very_same() -> None:
    source, weight = torch.randn(2, 8, 16, 16, 16), weights(8, 8, 3, 3, 3)
    assert convolve(source, weight, None, attributes(3))


@pytest.mark.parametrize("turned", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    ("source", "weight"),
    [
        ((1, 8, 16, 16, 16), (8, 8, 3, 3, 3)),
        ((1, 1, 24, 24, 24), (8, 1, 3, 3, 3)),
        ((1, 8, 1, 64, 64), (8, 8, 1, 3, 3)),
        ((1, 128, 12, 12), (128, 128, 3, 3)),
        ((1, 512, 7, 7), (512, 512, 1, 1)),
    ],
)
def test_results_are_laid_out_as_torch_lays_them_out(source, weight, turned) -> None:
    tensors = [torch.randn(source), weights(*weight)]
    for place, turn in enumerate(turned):
        if turn:
            tensors[place] = tensors[place].contiguous(memory_format=FORMATS[len(source)])
    convolve(*tensors, torch.randn(weight[0]), attributes(len(source) - 2, padding=0))


def test_views_with_gaps_and_expanded_ones() -> None:
    wide, weight = torch.randn(1, 8, 16, 16, 32), weights(8, 16, 3, 3, 3)
    convolve(wide[..., ::2], weight[:, ::2], None, attributes(3))
    convolve(wide.transpose(2, 4), weight[:, :8].transpose(2, 3), None, attributes(3))
    convolve(torch.randn(1, 1, 16, 16, 16).expand(1, 8, -1, -1, -1), weight[:, :8], None, attributes(3))
    flat = torch.randn(8 * 16**3).as_strided((1, 8, 16, 16, 16), (1, 16**3, 256, 16, 1))  # odd, where a size is 1
    convolve(flat, weight[:, :8], None, attributes(3))
    turned = torch.randn(1, 24, 24, 24, 1).permute(0, 4, 1, 2, 3)  # one channel: both formats at once
    convolve(turned, weights(8, 1, 3, 3, 3), None, attributes(3))


@pytest.mark.parametrize(
    "change",
    [
        {"stride": [0, 1, 1]}, {"stride": [1, 1]}, {"padding": [-1] * 3}, {"padding": [1]}, {"dilation": [0] * 3},
        {"weight": torch.ones(8, 7, 3, 3, 3)}, {"weight": torch.ones(8, 8, 3, 3)}, {"weight": torch.ones(8)},
        {"weight": torch.ones(8, 8, 30, 30, 30)}, {"bias": torch.ones(7)}, {"bias": torch.ones(8).double()},
        {"weight": torch.ones(8, 8, 3, 3, 3).double()}, {"groups": 0}, {"groups": 3},
    ],
)  # fmt: skip
def test_errors_are_torchs(change) -> None:
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "transposed", "output_padding", "groups")
    values = (torch.ones(1, 8, 16, 16, 16), torch.ones(8, 8, 3, 3, 3), None, *attributes(3))
    call_of = dict(zip(names, values, strict=True)) | change
    results = []
    for call in (CONVOLUTION._op, by_onednn(NAME, CONVOLUTION._op)):
        try:
            results.append(call(**call_of))
        except RuntimeError as error:
            results.append(str(error))
    if isinstance(results[0], str):
        assert results[0] == results[1]
    else:
        torch.testing.assert_close(*results)


SIDES = st.integers(1, 14)


@given(
    dims=st.sampled_from((2, 3)), batch=st.integers(1, 3), channels=st.sampled_from((1, 3, 8, 64)),
    outs=st.sampled_from((1, 8, 64)), kernel=st.lists(st.integers(1, 4), min_size=3, max_size=3),
    sides=st.lists(SIDES, min_size=3, max_size=3), stride=st.lists(st.integers(1, 3), min_size=3, max_size=3),
    padding=st.lists(st.integers(0, 2), min_size=3, max_size=3), dilation=st.integers(1, 2),
    turned=st.tuples(st.booleans(), st.booleans()), biased=st.booleans(),
)  # fmt: skip
def test_any_convolution_is_torchs(
    dims, batch, channels, outs, kernel, sides, stride, padding, dilation, turned, biased
) -> None:
    sides = [max(side, dilation * (each - 1) + 1) for side, each in zip(sides, kernel, strict=True)]
    source = torch.randn(batch, channels, *sides[:dims])
    weight = weights(outs, channels, *kernel[:dims])
    if turned[0]:
        source = source.contiguous(memory_format=FORMATS[dims + 2])
    if turned[1]:
        weight = weight.contiguous(memory_format=FORMATS[dims + 2])
    rest = (stride[:dims], padding[:dims], [dilation] * dims, False, [0] * dims, 1)
    bias = torch.randn(outs) if biased and not any(turned) else None  # torch itself crashes over some with all three
    convolve(source, weight, bias, rest)


@given(sizes=st.lists(st.integers(0, 99), max_size=6), weight=st.lists(st.integers(0, 99), max_size=6))
def test_any_sizes_have_an_answer(sizes, weight) -> None:
    assert pays(sizes, weight, [1] * (len(weight) - 2)) in (True, False)


def test_only_a_cpu_device_chooses_and_only_convolutions() -> None:
    relu = torch.ops.aten.relu.default
    assert by_onednn(relu.name(), relu._op) is relu._op
    for options in ({}, {"kernels": "quickest"}):
        assert open_device("cpu", options).bind(CONVOLUTION, NAME) is not CONVOLUTION._op
    for device in (open_device("cpu", {"kernels": "torch"}), open_device("sim", {})):  # which charges for what it sees
        assert device.bind(CONVOLUTION, NAME) is CONVOLUTION._op


def run(guest, weight: torch.Tensor, changes: int) -> list[torch.Tensor]:
    """A program that convolves and writes to its weight in turns."""
    args = [{TENSOR: 0}, {TENSOR: 1}, None, *attributes(3)]
    guest.send([Record.DEFINE, 0, "aten::convolution", args, {}])
    guest.send([Record.DEFINE, 1, "aten::mul_.Tensor", [{TENSOR: 0}, {TENSOR: 1}], {}])
    guest.upload(1, torch.linspace(-1, 1, 8 * 16**3).view(1, 8, 16, 16, 16))
    guest.upload_bulk(2, weight)
    guest.upload(3, torch.tensor(1.25))
    found = []
    for change in range(changes):
        guest.send([0, 10 + change, [1, 2]], [1, 0, [2, 3]])
        found.append(guest.fetch(10 + change))
    return found


def test_executors_agree_on_every_bit_and_can_be_told_to_take_torchs_choice(connect) -> None:
    weight = weights(8, 8, 3, 3, 3)
    first, again = run(connect(), weight, 3), run(connect(), weight, 3)
    later = run(connect(), weight * 1.25, 2)  # as a replay from a checkpoint behind the first step
    torchs = run(connect(device_options={"kernels": "torch"}), weight, 3)
    source = torch.linspace(-1, 1, 8 * 16**3).view(1, 8, 16, 16, 16)
    for step in range(3):
        assert torch.equal(first[step], again[step])
        assert step == 0 or torch.equal(first[step], later[step - 1])
        assert torch.equal(torchs[step], CONVOLUTION(source, weight, None, *attributes(3)))
        torch.testing.assert_close(first[step], torchs[step])
        weight = weight * 1.25
