"""What a GPU does in place of kernels that only the CPU has: the same values, sizes and strides."""

from __future__ import annotations

import pytest
import torch

from dgsf.remoting.executor import recurrent
from dgsf.remoting.executor.cudadevice import CudaDevice
from dgsf.remoting.executor.devices import Host
from tests.unit.test_executor_cuda import HostRuntime

aten = torch.ops.aten
FLASH = aten._scaled_dot_product_flash_attention_for_cpu.default
FLASH_BACK = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
LAYER, LAYER_BACK = aten.mkldnn_rnn_layer.default, aten.mkldnn_rnn_layer_backward.default


def on_gpu(overload):
    """What the CUDA device calls; never torch's CPU kernel itself."""
    found = CudaDevice(HostRuntime()).bind(overload, overload.name())
    assert found is not overload._op
    return found


def same(found, expected) -> None:
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.stride() == theirs.stride()
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}, {"mask": True}])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attention_there_and_back(options, turned, dtype) -> None:
    torch.manual_seed(0)
    options = dict(options)
    sizes = ((2, 5, 3, 8), (2, 5, 3, 8), (2, 5, 3, 8)) if turned else ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8))
    q, k, v = (torch.randn(size, dtype=dtype).transpose(1, 2 if turned else 1) for size in sizes)
    causal = options.pop("is_causal", False)
    if options.pop("mask", False):
        mask = torch.zeros(q.shape[2], k.shape[2], dtype=dtype)
        mask[1, 2:] = mask[3] = float("-inf")  # the fourth query sees nothing
        options["attn_mask"] = mask
    expected = FLASH(q, k, v, 0.0, causal, **options)
    same(on_gpu(FLASH)(q, k, v, 0.0, causal, **options), expected)
    if "attn_mask" in options:
        return  # torch's own way back is not a number where a query sees nothing
    grad = torch.randn_like(expected[0])
    given = (grad, q, k, v, *expected, 0.0, causal)
    same(on_gpu(FLASH_BACK)(*given, **options), FLASH_BACK(*given, **options))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("finals", [False, True])
def test_an_lstm_layer_there_and_back(reverse, finals) -> None:
    torch.manual_seed(0)
    steps, batch, wide, size = 4, 2, 3, 5
    source = torch.randn(steps, batch, wide)
    weights = [torch.randn(4 * size, wide), torch.randn(4 * size, size), torch.randn(4 * size), torch.randn(4 * size)]
    start = [torch.randn(1, batch, size), torch.randn(1, batch, size)]
    given = (source, *weights, *start, reverse, [], 2, size, 1, True, False, False, True)
    *expected, workspace = LAYER(*given)
    *found, none = on_gpu(LAYER)(*given)
    same(found, expected)
    assert not none.numel()
    grads = [torch.randn_like(each) if finals or not place else None for place, each in enumerate(expected)]
    rest = (reverse, 2, size, 1, True, True, False, [], False)
    gradients = LAYER_BACK(source, *weights, *start, *expected, *grads, *rest, workspace)
    back = (source, *weights, *start, *expected, *grads, *rest)
    same(on_gpu(LAYER_BACK)(*back, workspace), gradients)
    same(Host().bind(LAYER_BACK, LAYER_BACK.name())(*back, none), gradients)  # forward there, backward here


def test_lengths_go_to_the_cpu() -> None:
    split = aten.tensor_split.tensor_indices_or_sections
    parts = on_gpu(split)(torch.arange(6), torch.tensor([2, 3]), 0)
    assert [part.tolist() for part in parts] == [[0, 1], [2], [3, 4, 5]]


def test_the_random_state_of_another_kind_of_device_is_a_seed() -> None:
    before = torch.default_generator.get_state()
    try:
        drawn = []
        for state in (bytes(16), bytes(16), bytes(15) + b"1"):
            Host().set_rng_state(state)
            drawn.append(torch.rand(3))
        assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
        with pytest.raises(RuntimeError):
            Host().set_rng_state(bytes(17))
    finally:
        torch.default_generator.set_state(before)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("finals", [False, True])
@pytest.mark.parametrize(("mode", "gates"), [(recurrent.RELU, 1), (recurrent.TANH, 1), (recurrent.GRU, 3)])
def test_layers_of_other_modes_are_those_of_torch_step_by_step(mode, gates, reverse, finals) -> None:
    torch.manual_seed(0)
    steps, batch, wide, size = 4, 2, 3, 5
    source, start = torch.randn(steps, batch, wide), torch.randn(1, batch, size)
    rows = gates * size
    weights = [torch.randn(rows, wide), torch.randn(rows, size), torch.randn(rows), torch.randn(rows)]
    given = [each.requires_grad_() for each in (source, *weights, start)]
    turned = source.flip(0) if reverse else source
    out, last = recurrent._WHOLE[mode](turned, start, weights, True, 1, 0.0, True, False, False)
    out = out.flip(0) if reverse else out
    to_out, to_last = torch.randn_like(out), torch.randn_like(last) if finals else None
    total = (out * to_out).sum() + ((last * to_last).sum() if finals else 0)
    expected = torch.autograd.grad(total, given)
    rest = (reverse, [], mode, size, 1, True, False, False, True)
    with torch.no_grad():
        for bind in (on_gpu, lambda overload: Host().bind(overload, overload.name())):
            found = bind(LAYER)(source, *weights, start, start, *rest)
            same(found[:2], (out, last))
            back = bind(LAYER_BACK)(
                source, *weights, start, start, *found[:3], to_out, to_last, None, reverse, mode, size, 1, True, True,
                False, [], False, found[3],
            )  # fmt: skip
            for mine, theirs in zip(back, expected, strict=False):
                torch.testing.assert_close(mine, theirs)
