"""Tensors made elsewhere of remote ones: on the CPU by a factory that takes tensors, from their real values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from remote_device import same

from dgsf.remoting.guest import local

CPU = torch.device("cpu")
ONLY_LIKE_IT = {"empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like",
                "new_empty", "new_empty_strided", "new_zeros", "new_ones", "new_full"}  # fmt: skip


def makers() -> list[Any]:
    """Every aten overload that takes a tensor and the device of a new one."""
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        bare, _, overload = name.removeprefix("aten::").partition(".")
        func = getattr(getattr(torch.ops.aten, bare), overload or "default") if name.startswith("aten::") else None
        if func is not None and _makes(func._schema):
            found.append(func)
    return found


def _makes(schema: Any) -> bool:
    options = any(argument.name == "device" and argument.kwarg_only for argument in schema.arguments)
    return options and any("Tensor" in str(argument.type) for argument in schema.arguments)


def test_bounds_on_the_device_give_their_values_to_a_range_on_the_cpu(device):
    a, b = torch.tensor(-2.0, device=device), torch.tensor(3.0, device=device)
    assert torch.linspace(a, b, 3, device="cpu").tolist() == [-2.0, 0.5, 3.0]
    assert torch.linspace(a, 3.0, 3, device="cpu").tolist() == [-2.0, 0.5, 3.0]
    assert torch.linspace(-2.0, b, 3).tolist() == [-2.0, 0.5, 3.0]
    torch.testing.assert_close(torch.logspace(a, b, 2, device="cpu"), torch.tensor([0.01, 1000.0]))
    same(torch.linspace(a, b, 3, device=device), torch.tensor([-2.0, 0.5, 3.0]))


def test_the_tensor_to_be_like_is_not_downloaded_and_a_bound_is(device, stream):
    x, high = torch.ones(2, 3, device=device), torch.tensor(1, device=device)
    stream.waits = 0
    assert torch.zeros_like(x, device="cpu").tolist() == [[0.0] * 3] * 2
    assert x.new_full((2,), 4, device="cpu").tolist() == [4.0, 4.0]
    assert torch.ones_like(x, device="meta").device.type == "meta"
    assert stream.waits == 0
    assert torch.randint_like(x, high, device="cpu").tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("func", makers(), ids=lambda func: func.name())
def test_no_operator_computes_from_a_placeholder(func, device, monkeypatch):
    downloaded = []
    monkeypatch.setattr(local, "download", lambda tensor: downloaded.append(id(tensor)))
    arguments = func._schema.arguments
    tensors = {each.name: torch.ones(1, device=device) for each in arguments if "Tensor" in str(each.type)}
    args = [tensors.get(each.name, 0) for each in arguments if not each.kwarg_only]
    kwargs = {each.name: tensors[each.name] for each in arguments if each.kwarg_only and each.name in tensors}
    plan: Any = SimpleNamespace(name=func.name(), func=lambda *args, **kwargs: None)
    local.make_elsewhere(plan, args, {**kwargs, "device": CPU})
    left = {name for name, tensor in tensors.items() if id(tensor) not in downloaded}
    assert left == ({"self"} if func._schema.name.removeprefix("aten::") in ONLY_LIKE_IT else set())
