"""Tensors of the CPU beside remote ones: nothing is written to a copy that nobody has."""

import pytest
import torch

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
