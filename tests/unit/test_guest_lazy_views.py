"""Conjugated and negated views are views, as on the CPU: writes reach the base, and they show what it has become."""

import copy
import io

import pytest
import torch
from remote_device import same

VALUES = torch.tensor([[1 + 2j, 3 + 4j], [5 - 1j, -2j]])


def conjugated(x):
    return x.conj()


def adjoint(x):
    return x.adjoint()


def transposed(x):
    return x.mH


def imaginary(x):
    return x.conj().imag


def real(x):
    return x.conj().real


def row(x):
    return x.conj()[1:]


def negated(x):
    return torch._neg_view(x)


def twice(x):
    return x.conj().t().conj()


VIEWS = [conjugated, adjoint, transposed, imaginary, real, row, negated, twice]


@pytest.fixture
def both(device):
    return VALUES.clone(), VALUES.to(device)


@pytest.mark.parametrize("view", VIEWS)
def test_writes_through_the_view_reach_its_base(view, both):
    for x in both:
        view(x).mul_(2)
        view(x)[0, 0] = 7
        view(x)[0].fill_(0.5)
        view(x).copy_(view(x) + 1)
        torch.add(view(x), 1, out=view(x))
    same(both[1], both[0])


@pytest.mark.parametrize("view", VIEWS)
def test_the_view_shows_later_changes_of_its_base(view, both):
    views = [view(x) for x in both]
    for x in both:
        x.mul_(2 + 1j)
        x[0, 1] = 8j
    same(views[1], views[0].resolve_conj().resolve_neg())
    assert views[1].tolist() == views[0].tolist()
    assert views[1][0, 0].item() == views[0][0, 0].item()


@pytest.mark.parametrize("view", VIEWS)
def test_torch_says_the_same_of_the_view(view, both):
    local, remote = (view(x) for x in both)
    for ask in (torch.Tensor.is_conj, torch.Tensor.is_neg, torch.Tensor._is_view, torch.Tensor.storage_offset):
        assert ask(remote) == ask(local)
    assert repr(remote).startswith(repr(local)[: repr(local).index("]]") + 2])


def test_a_resolved_view_is_a_copy(both):
    for x in both:
        x.conj().resolve_conj().mul_(3)
        x.conj().imag.resolve_neg().mul_(3)
        x.conj().clone().mul_(3)
        x.conj_physical().mul_(3)
    same(both[1], VALUES)


@pytest.mark.parametrize("change", [torch.Tensor.sin_, lambda v: v.mul_(1 + 2j), lambda v: v[0].zero_()])
def test_gradients_through_writes_to_the_view(change, both):
    grads = []
    for x in both:
        leaf = x.clone().requires_grad_()
        base = leaf * (1 + 1j)
        change(base.conj())
        (base.abs() + base.mH.imag).sum().backward()
        grads.append(leaf.grad)
    same(grads[1], grads[0].resolve_conj())


def test_a_view_whose_base_has_changed_cannot_be_derived(both):
    for x in both:
        leaf = x.clone().requires_grad_()
        base = leaf * 1
        kept = base.conj()
        out = kept * kept
        base.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.abs().sum().backward()


def test_reading_the_bytes_of_a_conjugated_view_is_refused_as_on_the_cpu(both):
    for x in both:
        with pytest.raises(RuntimeError, match="conj"):
            torch.view_as_real(x.conj())


def test_views_without_gradients_and_in_inference_mode(both):
    for x in both:
        with torch.inference_mode():
            x.conj().add_(1j)
        with torch.no_grad():
            x.mH.add_(1j)
    same(both[1], both[0])


def test_lists_of_conjugated_views_are_read_and_never_written_as_on_the_cpu(both):
    with torch.no_grad():
        read = [torch._foreach_add([x.conj(), x.mH], 1.5) for x in both]
        again = [torch._foreach_add([x.conj(), x.mH], 1.5) for x in both]  # on the device by the short way
        for x in both:
            torch._foreach_add_([x, x.clone()], 1.5)
            with pytest.raises(RuntimeError, match="mutable TensorLists with conjugate inputs"):
                torch._foreach_add_([x.conj(), x.mH], 1.5)
    for local, remote in zip((*read[0], *again[0]), (*read[1], *again[1]), strict=True):
        same(remote, local)
    same(both[1], both[0])


def test_a_deep_copy_of_a_view_has_its_values(both):
    for view in VIEWS:
        local, remote = (copy.deepcopy(view(x)) for x in both)
        same(remote, local)
        assert remote.is_conj() == local.is_conj()
        remote.zero_()
    same(both[1], VALUES)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_saved_together_with_its_base_it_is_a_view_of_it_again(order, both):
    loaded = []
    for x in both:
        file = io.BytesIO()
        pair = (x, x.mH)
        torch.save([pair[place] for place in order], file)
        file.seek(0)
        found = torch.load(file)
        loaded.append([found[order.index(place)].cpu() for place in (0, 1)])
    for local, remote in zip(*loaded, strict=True):
        assert torch.equal(remote, local)
    loaded[1][0].mul_(2)
    assert torch.equal(loaded[1][1], 2 * VALUES.mH)


def test_a_view_that_is_assigned_as_data_keeps_its_values(both):
    for x in both:
        target = torch.zeros_like(x)
        target.data = x.conj()
        target.mul_(1j)
        other = x.mH
        other.data = torch.ones(3, device=x.device)
        assert other.shape == (3,) and not other.is_conj() and other.sum().item() == 3
    same(both[1], both[0])


def test_a_tensor_set_to_the_memory_of_a_view_keeps_its_own_bits(both):
    made = []
    for x in both:
        plain, lazy = torch.zeros_like(x), torch.zeros_like(x).conj()
        plain.set_(x.conj())
        lazy.set_(x)
        made.append((plain, lazy, torch.zeros_like(x.real).set_(x.conj().imag)))
        x.mul_(2j)
    for local, remote in zip(*made, strict=True):
        assert remote.is_conj() == local.is_conj() and remote.is_neg() == local.is_neg()
        same(remote, local.resolve_conj())


def test_gradients_of_a_complex_linear_layer(device):
    local = torch.nn.Linear(3, 2, dtype=torch.complex64)
    remote = copy.deepcopy(local).to(device)
    source = torch.tensor([[1 + 1j, 2 - 1j, 3j]])
    found = []
    for layer, x in ((local, source), (remote, source.to(device))):
        (layer(x.requires_grad_()).abs().sum() + layer(x.conj()).imag.sum()).backward()
        found.append((layer.weight.grad, layer.bias.grad, x.grad))
    for here, there in zip(*found, strict=True):
        same(there, here.resolve_conj())


def test_views_make_one_call_and_wait_for_nothing(device, stream):
    x = VALUES.to(device)
    before, made = stream.waits, len(stream.calls)
    view = x.conj()
    assert stream.calls[made:] == ["aten::_conj"] and stream.waits == before
    del view
