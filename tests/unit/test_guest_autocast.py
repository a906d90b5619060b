"""Autocast on the device casts for the operators that it casts for on CUDA, and refuses the one that CUDA refuses."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.autocast_test_lists import AutocastTestLists

# Sent whole, before torch takes them apart into what CUDA casts for; or lists over which CUDA has kernels of its own.
OURS_ALONE = {
    "aten::conv1d.padding", "aten::conv2d.padding", "aten::conv3d.padding", "aten::cross_entropy_loss",
    "aten::lstm.input", "aten::lstm.data", "aten::gru.input", "aten::gru.data", "aten::rnn_tanh.input",
    "aten::rnn_tanh.data", "aten::rnn_relu.input", "aten::rnn_relu.data",
}  # fmt: skip
LIBRARIES = ("aten::cudnn", "aten::_cudnn", "aten::miopen")


def _casts(key: str) -> set[str]:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    names = torch._C._dispatch_get_all_op_names()
    return {name for name in names if name.startswith("aten::") and has(name, key) and not name.startswith(LIBRARIES)}


def test_the_lists_are_cudas_own(device):
    assert _casts("AutocastPrivateUse1") - OURS_ALONE == _casts("AutocastCUDA")


def _of(name, args, owners):
    found = next((getattr(owner, name) for owner in owners if hasattr(owner, name)), None)
    return found or getattr(type(args[0]), name)


def _lists(lists):
    yield from ((item, torch.float16) for item in (*lists.torch_fp16, *lists.nn_fp16, *lists.methods_fp16))
    yield from ((item, torch.float32) for item in (*lists.torch_fp32, *lists.nn_fp32, *lists.methods_fp32))
    yield from ((item, torch.float32) for item in lists.torch_need_autocast_promote)


@pytest.mark.filterwarnings("ignore::UserWarning")  # some of what torch tests is deprecated
def test_results_have_the_types_that_torchs_own_tests_ask_for(device):
    lists = AutocastTestLists(torch.device("dgsf"))
    for (name, args, *more), wanted in _lists(lists):
        if name.startswith("cudnn") or name == "einsum":
            continue
        function = _of(name, args, (torch, torch._C._nn))
        with torch.autocast("dgsf", dtype=torch.float16):
            made = function(*args, **(more[0] if more and isinstance(more[0], dict) else {}))
        first = made[0] if isinstance(made, list | tuple) else made
        assert not isinstance(first, torch.Tensor) or first.dtype is wanted, name


def test_tensors_of_two_lower_types_are_joined_as_on_cuda(device):
    with torch.autocast("dgsf", dtype=torch.float16):
        half, brain = torch.ones(1, device=device).half(), torch.ones(1, device=device).bfloat16()
        assert torch.cat([half, brain]).dtype is torch.float32
        assert F.interpolate(half.view(1, 1, 1), scale_factor=2).dtype is torch.float32
        assert F.rms_norm(half, (1,)).dtype is torch.float32


def test_the_loss_that_is_unsafe_is_refused(device):
    p = torch.full((2,), 0.5, device=device)
    with torch.autocast("dgsf"):
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(p, p)
        with torch.autocast("dgsf", enabled=False):
            assert F.binary_cross_entropy(p, p).dtype is torch.float32
