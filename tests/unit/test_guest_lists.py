"""Operators over lists of tensors: the same values and types on the short way as on torch's own."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

FORMS = {
    "a number": lambda xs, ys: torch._foreach_add_(xs, 1),
    "numbers": lambda xs, ys: torch._foreach_mul_(xs, [2.0, 3.0, 4.0]),
    "tensors": lambda xs, ys: torch._foreach_add_(xs, ys, alpha=0.5),
    "a tuple of tensors": lambda xs, ys: torch._foreach_sub_(xs, tuple(ys)),
    "one tensor": lambda xs, ys: torch._foreach_mul_(xs, ys[0].sum()),
    "new tensors": lambda xs, ys: torch._foreach_sqrt(xs),
    "results as arguments": lambda xs, ys: torch._foreach_div_(torch._foreach_exp(xs), torch._foreach_exp(ys)),
    "three lists": lambda xs, ys: torch._foreach_addcmul_(xs, ys, ys, value=0.1),
    "norms": lambda xs, ys: torch._foreach_norm(xs),
    "the greatest": lambda xs, ys: torch._foreach_maximum(xs, ys),
}


def lists(device):
    torch.manual_seed(1)
    return [[torch.rand(size).add(1).to(device) for size in ((3,), (2, 2), ())] for _ in range(2)]


def here(tensors):
    return [tensor.cpu() for tensor in tensors]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_each_time(form, device):
    (theirs, more), (ours, others) = lists("cpu"), lists(device)
    with torch.no_grad():
        for _ in range(3):
            expected, found = FORMS[form](theirs, more), FORMS[form](ours, others)
            assert type(found) is type(expected)
            torch.testing.assert_close(here(found), list(expected))
            torch.testing.assert_close(here(ours), theirs)


def test_weights_that_change_before_the_backward_pass_are_noticed(device):
    weight = torch.ones(3, 3, device=device, requires_grad=True)
    optimizer = torch.optim.AdamW([weight], fused=True)
    for _ in range(3):
        optimizer.zero_grad()
        weight.mul(weight).sum().backward()
        optimizer.step()
    loss = weight.mul(weight).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_gradients_go_through_lists(device):
    parts = [torch.ones(2, device=device, requires_grad=True) for _ in range(2)]
    sum(each.sum() for each in torch._foreach_mul(parts, 3.0)).backward()
    assert [part.grad.tolist() for part in parts] == [[3.0, 3.0]] * 2


def test_those_who_watch_calls_see_them(device):
    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func.name())
            return func(*args, **(kwargs or {}))

    seen = []
    parts = [torch.ones(2, device=device) for _ in range(2)]
    with torch.no_grad():
        torch._foreach_add_(parts, 1.0)
        torch._foreach_add_(parts, 1.0)
        with Watch():
            torch._foreach_add_(parts, 1.0)
    assert seen == ["aten::_foreach_add_.Scalar"]
    assert parts[0].tolist() == [4.0, 4.0]


def test_inference_tensors_can_be_written(device):
    with torch.inference_mode():
        parts = [torch.ones(2, device=device) for _ in range(2)]
        for _ in range(3):
            torch._foreach_mul_(parts, 2.0)
    assert parts[1].tolist() == [8.0, 8.0]


def test_wrong_lists_are_told_as_by_torch(device):
    parts = [torch.ones(2, device=device) for _ in range(2)]
    with torch.no_grad():
        for _ in range(2):
            with pytest.raises(RuntimeError):
                here(torch._foreach_add(parts, parts[:1]))
        torch.testing.assert_close(here(torch._foreach_add(parts, parts)), [torch.full((2,), 2.0)] * 2)


def test_lists_of_both_devices_are_done_where_each_tensor_is(device):
    with torch.no_grad():
        for order in ((0, 1), (1, 0)):
            pair = [torch.ones(2, device=device), torch.ones(2)]
            mixed = [pair[place] for place in order]
            for _ in range(3):
                torch._foreach_mul_(mixed, 2.0)
            assert [part.tolist() for part in mixed] == [[8.0, 8.0]] * 2
            assert [part.device.type for part in torch._foreach_neg(mixed)] == [part.device.type for part in mixed]


def test_lists_are_copied_to_the_cpu(device):
    there, here_ = (
        [torch.ones(2, device=device), torch.full((3,), 2.0, device=device)],
        [torch.zeros(2), torch.zeros(3)],
    )
    with torch.no_grad():
        for _ in range(2):
            torch._foreach_copy_(here_, there)
            torch._foreach_add_(there, 1.0)
    assert [part.tolist() for part in here_] == [[2.0, 2.0], [3.0, 3.0, 3.0]]


@pytest.mark.parametrize("number", [np.float64, np.float32, np.int64])
def test_numbers_of_numpy(number, device):
    parts = [torch.ones(2, device=device) for _ in range(2)]
    with torch.no_grad():
        for _ in range(3):
            torch._foreach_add_(parts, parts, alpha=number(2))
            torch._foreach_mul_(parts, [number(2), number(3)])
            torch._foreach_mul_(parts, [1.0, number(2)])
            torch._foreach_add_(parts, number(1))
    expected = [1.0, 1.0]
    for _ in range(3):
        expected = [expected[0] * 3 * 2 + 1, expected[1] * 3 * 3 * 2 + 1]
    assert [part[0].item() for part in parts] == expected


def test_tuples_by_name(device):
    parts, factors = [torch.ones(2, device=device)], (torch.full((2,), 2.0, device=device),)
    with torch.no_grad():
        for _ in range(3):
            torch._foreach_addcmul_(parts, tensor1=factors, tensor2=factors)
    assert parts[0].tolist() == [13.0, 13.0]


@pytest.mark.parametrize("grad", [True, False])
def test_lists_that_change_before_the_backward_pass_are_noticed(grad, device):
    weight, factors = torch.ones(2, device=device, requires_grad=True), [torch.ones(2, device=device)]
    for _ in range(2):
        loss = weight.mul(factors[0]).sum()
        with torch.set_grad_enabled(grad):
            torch._foreach_add_(factors, 5.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def grouped(tensorlists, *, with_indices=False):
    return torch.utils._foreach_utils._group_tensors_by_device_and_dtype(tensorlists, with_indices)


def shown(groups):
    return {
        (device.type, dtype): ([[id(tensor) for tensor in each] for each in lists_], indices)
        for (device, dtype), (lists_, indices) in groups.items()
    }


@pytest.mark.parametrize("with_indices", [False, True])
def test_optimizers_sort_tensors_of_one_type_as_torch_does(device, with_indices):
    given = [[torch.ones(size, device=device) for size in (2, 3)] for _ in range(3)]
    given[1] = []
    ids = [[id(tensor) for tensor in each] for each in given]
    assert shown(grouped(given, with_indices=with_indices)) == {
        (given[0][0].device.type, torch.float32): (ids, [0, 1] if with_indices else [])
    }


def test_optimizers_sort_tensors_of_several_types_and_places_as_torch_does(device):
    half, whole = torch.ones(2, device=device, dtype=torch.float16), torch.ones(2, device=device)
    assert len(grouped([[half, whole], [half, whole]])) == 2
    assert len(grouped([[whole, torch.ones(2)]])) == 2
    with pytest.raises(RuntimeError, match="same dtype"):
        grouped([[whole], [half]])


def test_lists_that_do_not_fit_are_torchs_to_judge(device):
    one, named = torch.ones(2, device=device), torch.ones(2)
    named._m = "somebody's own"
    with pytest.raises(RuntimeError):
        grouped([[one, one], [one]])
    with pytest.raises(RuntimeError):
        grouped([])
    assert len(grouped([[named, named]])) == 1


class Watchful(torch.Tensor):
    """A tensor of somebody else's class, which wants to know what is done with it."""

    asked = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.asked += 1
        return super().__torch_function__(func, types, args, kwargs or {})


def test_an_optimizer_still_asks_the_classes_of_others(device):
    weight = torch.ones(3).as_subclass(Watchful).requires_grad_()
    weight.grad = torch.ones(3).as_subclass(Watchful)
    optimizer = torch.optim.SGD([weight, torch.ones(2, device=device, requires_grad=True)], lr=0.1)
    Watchful.asked = 0
    optimizer._init_group(optimizer.param_groups[0], [], [], [])
    assert Watchful.asked > 0


def test_an_optimizer_of_remote_parameters_asks_the_classes_of_what_it_keeps(device):
    weight = torch.ones(3, device=device, requires_grad=True)
    weight.grad = torch.ones(3, device=device)
    optimizer = torch.optim.Adam([weight], lr=0.1, differentiable=True)  # looks at its count of steps
    with torch.no_grad():
        optimizer._init_group(optimizer.param_groups[0], [], [], [], [], [], [])
    optimizer.state[weight]["step"] = torch.tensor(0.0).as_subclass(Watchful)
    Watchful.asked = 0
    optimizer._init_group(optimizer.param_groups[0], [], [], [], [], [], [])
    assert Watchful.asked > 0


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "NAdam", "RAdam", "Adamax", "Adadelta"])
def test_optimizers_give_what_they_give_on_the_cpu(name, device):
    def trained(place):
        torch.manual_seed(2)
        model = torch.nn.Linear(3, 2).to(place)
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.05)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 3, device=place)).square().sum().backward()
            optimizer.step()
        return [each.detach().cpu() for each in model.parameters()]

    torch.testing.assert_close(trained(device), trained("cpu"))
