"""`copy.deepcopy` of remote tensors does what it does on the CPU: what shared memory shares it afterwards."""

from __future__ import annotations

import copy

import pytest
import torch
from remote_device import same


def _row(where):
    return torch.arange(12.0, device=where)


def _view(x):
    return [x, x[2:7]]


def _small_first(x):
    return [x[2:7], x]


def _views_only(x):
    return [x[2:7], x.view(3, 4).t(), x[8:]]


def _detached(x):
    return {"a": x, "b": x.detach()}


def _as_strided(x):
    return [x, torch.as_strided(x, (3, 3), (4, 1), 1)]


def _parts(x):
    return [x.view(3, 4), *x.split(5), *x.view(3, 4).unbind(1)]


def _of_a_view(x):
    return [x[1:][2:], x[1:].detach()[3:]]


def _turned_in_place(x):
    y = x.view(3, 4)
    return [y.t_(), x]


def _other_type(x):
    return [x.view(torch.int32), x]


def _torn(x):
    y = torch.arange(10, dtype=torch.uint8, device=x.device)
    return [y[:8].view(torch.float32), y, y[4:].view(torch.int16), y[:8].view(torch.int64)]


def _torn_whole_first(x):
    return _torn(x)[1::-1]


def _torn_by_bytes(x):
    return _torn(x)[::-1]


def _filled(x):
    y = torch.empty(0, device=x.device)
    return [torch.add(x, 1, out=y), y[:3]]


def _spread(x):
    return [x[:1].expand(4), x]


def _apart(x):
    return [x, x.clone(), x[:2].clone()]


def _with_gaps(x):
    y = torch.empty_strided((2, 3), (8, 2), device=x.device).fill_(1.0)
    return [y, y[1]]


SHAPES = [_view, _small_first, _views_only, _detached, _as_strided, _parts, _of_a_view, _turned_in_place, _other_type,
          _torn, _torn_whole_first, _torn_by_bytes, _filled, _spread, _apart, _with_gaps]  # fmt: skip


def _tensors(found):
    return list(found.values()) if isinstance(found, dict) else found


@pytest.mark.parametrize("build", SHAPES)
def test_what_is_joined_stays_joined_as_on_the_cpu(device, build):
    copies = {}
    for where in ("cpu", device):
        originals = _tensors(build(_row(where)))
        copies[where] = _tensors(copy.deepcopy(originals))
        for tensor in copies[where]:  # each write is seen by just those that share its memory
            tensor.view(-1)[:1].mul_(3) if tensor.is_contiguous() else tensor[..., :1].mul_(3)
        before = [each.cpu() for each in _tensors(build(_row("cpu")))]
        for original, unchanged in zip(originals, before, strict=True):
            assert torch.equal(original.cpu(), unchanged)
    for remote, local in zip(copies[device], copies["cpu"], strict=True):
        same(remote, local)
        assert remote.stride() == local.stride() and remote.storage_offset() == local.storage_offset()
        assert remote._base is None and remote.is_leaf


def test_parameters_are_copied_alone_as_torchs_are(device):
    for where in ("cpu", device):
        module = torch.nn.Linear(2, 2).to(where)
        module(torch.ones(1, 2, device=where)).sum().backward()
        module.weight.note = ["kept"]
        parameter, view = copy.deepcopy([module.weight, module.weight.detach()])
        assert isinstance(parameter, torch.nn.Parameter) and parameter.requires_grad and parameter.grad is None
        assert not hasattr(parameter, "note")
        parameter.data.zero_()
        assert view.cpu().ne(0).all()


def test_gradients_and_attributes_go_along(device):
    for where in ("cpu", device):
        x = torch.ones(3, device=where, requires_grad=True)
        (x * 2).sum().backward()
        x.note = ["deep"]
        y = copy.deepcopy(x)
        assert y.requires_grad and y.grad.cpu().tolist() == [2.0, 2.0, 2.0] and y.grad is not x.grad
        assert y.note == ["deep"] and y.note is not x.note
        with pytest.raises(RuntimeError, match="Only Tensors created explicitly"):
            copy.deepcopy(x * 2)


def test_a_module_and_the_views_in_its_buffers(device):
    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("all", torch.arange(6.0))
            self.register_buffer("some", self.all[2:4])

    made = Module().to(device)
    made.some = made.all[2:4]  # moving takes them apart, as on CUDA
    new = copy.deepcopy(made)
    new.all.zero_()
    assert new.some.tolist() == [0.0, 0.0] and made.some.tolist() == [2.0, 3.0]


def test_a_view_that_was_made_before_a_resize_is_refused(device):
    x = torch.arange(4.0, device=device)
    view = x[:2]
    x.resize_(8)
    with pytest.raises(RuntimeError, match="was resized after a view of it was made"):
        copy.deepcopy([view, x])
    assert copy.deepcopy([x])[0].shape == (8,)


@pytest.mark.parametrize("wants", [False, True])
def test_a_shallow_copy_shares_the_memory(device, wants):
    base = torch.arange(6.0, device=device)
    for original in (base.clone().requires_grad_(wants), base.view(2, 3)[1]):
        original.note = note = ["kept"]
        copied = copy.copy(original)
        assert copied is not original and copied.device == original.device and copied.note is note
        assert copied.requires_grad == original.requires_grad and copied.is_leaf
        with torch.no_grad():
            original.add_(1)
        assert torch.equal(copied.detach().cpu(), original.detach().cpu())


@pytest.mark.parametrize("wants", [False, True])
def test_a_shallow_copy_of_a_parameter_is_one(device, wants):
    original = torch.nn.Parameter(torch.ones(2, device=device), requires_grad=wants)
    copied = copy.copy(original)
    assert isinstance(copied, torch.nn.Parameter) and copied.requires_grad is wants
    with torch.no_grad():
        copied.zero_()
    assert original.tolist() == [0.0, 0.0]
    module = torch.nn.Linear(2, 2).to(device)
    assert copy.copy(module).weight is module.weight
