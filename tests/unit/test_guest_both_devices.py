"""Tensors of the CPU beside remote ones: nothing is written to a copy that nobody has."""

import pytest
import torch
from remote_device import same

TOTAL, ROW = torch.tensor(0.0), torch.zeros(4)
WRITES = {
    "a running total": (TOTAL, lambda here, one, row, index: here.add_(one)),
    "the greatest so far": (TOTAL, lambda here, one, row, index: torch.maximum(here, one, out=here)),
    "scaled": (TOTAL, lambda here, one, row, index: here.mul_(one)),
    "out=": (TOTAL, lambda here, one, row, index: torch.add(one, one, out=here)),
    "at indices": (ROW, lambda here, one, row, index: here.__setitem__(index, one)),
    "added at indices": (ROW, lambda here, one, row, index: here.index_add_(0, index, row[:2])),
    "copied to indices": (ROW, lambda here, one, row, index: here.index_copy_(0, index, row[:2])),
    "filled at indices": (ROW, lambda here, one, row, index: here.index_fill_(0, index, 3.0)),
    "selected into": (ROW[:2], lambda here, one, row, index: torch.index_select(row, 0, index, out=here)),
}


@pytest.mark.parametrize("what", WRITES)
def test_what_is_written_here_must_be_there(what, device):
    here, write = WRITES[what]
    here = here.clone()
    given = torch.ones((), device=device), torch.ones(4, device=device), torch.tensor([0, 1], device=device)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="same device"):
            write(here, *given)
    assert not here.any()


def test_a_tensor_here_is_filled_with_a_value_from_there(device):
    assert torch.zeros(3).fill_(torch.tensor(2.0, device=device)).tolist() == [2.0] * 3
    assert torch.zeros(3, device=device).fill_(torch.tensor(2.0)).tolist() == [2.0] * 3


@pytest.mark.parametrize(
    "use",
    [
        lambda index: torch.arange(3.0)[index],
        lambda index: torch.arange(3.0)[:, None][index, 0],
        lambda index: torch.arange(1.0)[index > 0],
        lambda index: torch.arange(3.0).index_put((index,), torch.ones(1)),
    ],
)
def test_a_cpu_tensor_is_not_picked_from_by_an_index_on_the_device(use, device):
    with pytest.raises(RuntimeError, match=r"indices should be either on cpu or on the same device .* \(cpu\)"):
        use(torch.tensor([1], device=device))


@pytest.mark.parametrize(
    "use",
    [
        lambda x: torch.arange(3.0).index_select(0, x.long()),
        lambda x: torch._foreach_add([x], [torch.ones(2)]),
        lambda x: torch._foreach_mul_([x], [torch.ones(2)]),
    ],
)
def test_tensors_of_two_devices_are_refused_where_cuda_refuses_them(use, device):
    with pytest.raises(RuntimeError, match="same device"):
        use(torch.ones(2, device=device))


def test_a_tensor_on_the_device_is_picked_from_by_an_index_of_the_cpu(device):
    x, index = torch.arange(6.0).view(2, 3), torch.tensor([1, 0])
    there = x.to(device)
    same(there[index], x[index])
    same(there[x > 2], x[x > 2])
    there[index, index] = torch.tensor(9.0)
    x[index, index] = torch.tensor(9.0)
    same(there, x)
    target = [torch.zeros(2, device=device)]
    torch._foreach_copy_(target, [torch.ones(2)])
    same(target[0], torch.ones(2))
    same(torch._foreach_mul(target, torch.tensor(2.0))[0], torch.full((2,), 2.0))
