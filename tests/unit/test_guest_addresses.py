"""Whose memory a tensor is: addresses and storages of remote tensors, as programs ask for them before they save."""

from __future__ import annotations

import copy
import io
import pickle
from collections import defaultdict
from itertools import pairwise

import pytest
import torch
from inprocess_stream import InProcessStream
from torch import nn

from dgsf.remoting.guest.attach import bind

_DISTINCT = ("emb.weight", "head.weight", "own.bias", "own.weight", "part", "whole")


def storage_id(tensor):
    """What transformers and safetensors tell tensors of one memory by."""
    return tensor.device, tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes()


def is_complete(tensor):
    """What safetensors asks: whether a tensor is the whole of its memory."""
    own = tensor.nelement() * tensor.element_size()
    return tensor.data_ptr() == tensor.untyped_storage().data_ptr() and own == tensor.untyped_storage().nbytes()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.head, self.own = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False), nn.Linear(3, 3)
        self.head.weight = self.emb.weight
        self.register_buffer("whole", torch.arange(6.0))


def shared_names(model):
    state, found = model.state_dict() | {"part": model.whole[2:4]}, defaultdict(set)
    assert sorted(state) == sorted(_DISTINCT)
    for name, tensor in state.items():
        found[storage_id(tensor)].add(name)
    return sorted(map(sorted, found.values()))


def test_what_shares_memory_is_found_by_its_storage(device):
    model = Tied()
    expected = shared_names(model)
    assert shared_names(model.to(device)) == expected
    complete = {name: is_complete(each) for name, each in model.state_dict().items()}
    assert all(complete.values()) and not is_complete(model.whole[2:4]) and is_complete(model.whole[:])


def test_parameters_are_counted_once_by_their_address(device):
    model = Tied().to(device)
    counted = {each.data_ptr(): each.numel() for each in model.state_dict().values()}
    assert sum(counted.values()) == sum(each.numel() for each in (*model.parameters(), *model.buffers()))


def _places(x):
    """Where views begin, counted from where the whole does."""
    views = (x, x[1], x[:, 1], x.t(), x.detach(), x.data, x[1][1:], x.view(torch.uint8)[0, 3:], x.flatten(), x.real)
    return [each.data_ptr() - x.data_ptr() for each in views], x[2:2].data_ptr(), x.clone().data_ptr() != x.data_ptr()


def test_views_begin_where_they_do_on_the_cpu(device):
    x = torch.arange(12.0).view(3, 4)
    assert _places(x.to(device)) == _places(x)


def test_an_address_stays_as_it_is_and_no_two_memories_overlap(device):
    tensors = [torch.empty(size, device=device) for size in (1, 200, 129, 5)]
    before = [each.data_ptr() for each in tensors]
    for each in tensors:
        each.add_(1)
    after = [each.data_ptr() for each in reversed(tensors)][::-1]
    assert before == after and len(set(before)) == 4
    ranges = sorted((each.data_ptr(), each.data_ptr() + each.nbytes) for each in tensors)
    assert all(end <= start for (_, end), (start, _) in pairwise(ranges))


def test_memory_that_grew_is_elsewhere_and_other_memory_is_not_in_it(device):
    x, other = torch.ones(4, device=device), torch.ones(4, device=device)
    first = x.data_ptr()
    assert other.data_ptr() > first
    x.resize_(4000)
    assert not x.data_ptr() <= other.data_ptr() < x.data_ptr() + x.nbytes
    assert x.untyped_storage().nbytes() == 16000


def test_a_storage_tells_where_and_how_large_it_is_and_has_no_bytes(device):
    x = torch.ones(3, 2, device=device)[1:]
    untyped, typed = x.untyped_storage(), x.storage()
    assert (untyped.nbytes(), untyped.size(), len(untyped), untyped.element_size()) == (24, 24, 24, 1)
    assert (typed.nbytes(), typed.size(), len(typed), typed.element_size()) == (24, 6, 6, 4)
    assert untyped.data_ptr() == typed.data_ptr() == x.data_ptr() - 8 and untyped.device == x.device
    with pytest.raises(AttributeError, match=r"use tensor\.cpu\(\) first"):
        untyped.tolist()
    assert torch.empty(0, device=device).untyped_storage().data_ptr() == 0


def test_an_address_is_never_given_to_others_who_would_read_there():
    with bind(InProcessStream(), alias="cuda"):
        x = torch.ones(2, device="cuda")
        assert not hasattr(x, "__cuda_array_interface__")
        with pytest.raises(BufferError, match=r"use tensor\.cpu\(\) first"):
            torch.from_dlpack(x)
        with pytest.raises(BufferError, match=r"use tensor\.cpu\(\) first"):
            torch.utils.dlpack.to_dlpack(x)


def test_recurrent_layers_are_not_given_to_cudnn():
    """torch joins their weights in memory where each has an address of its own."""
    with bind(InProcessStream(), alias="cuda"):
        assert not torch.backends.cudnn.is_acceptable(torch.ones(2, device="cuda"))
        layer = nn.LSTM(2, 3).cuda()
        layer.flatten_parameters()
        assert layer(torch.ones(1, 1, 2).cuda())[0].shape == (1, 1, 3)


def test_storages_are_shared_as_on_cuda(device):
    storage = torch.ones(2, device=device).untyped_storage()
    assert storage.is_shared() and storage.share_memory_() is storage


def test_a_storage_is_one_to_torch_and_says_that_it_cannot_be_copied(device):
    x = torch.ones(2, device=device)
    assert torch.is_storage(x.untyped_storage()) and torch.is_storage(x.storage())
    assert torch.is_storage(torch.ones(2).untyped_storage()) and not torch.is_storage(x)
    for use in (lambda s: s.cpu(), lambda s: s.clone()):
        with pytest.raises(AttributeError, match=r"no bytes in this process; use tensor\.cpu\(\) first"):
            use(x.untyped_storage())
    for use in (copy.copy, copy.deepcopy, pickle.dumps, lambda storage: torch.save(storage, io.BytesIO())):
        with pytest.raises(TypeError, match=r"cannot be saved or copied: .* use tensor\.cpu\(\) first"):
            use(x.untyped_storage())


def test_what_a_storage_is_torch_says_again_afterwards():
    before = torch.is_storage, torch.serialization.normalize_storage_type
    with bind(InProcessStream()):
        assert torch.is_storage is not before[0]
    assert (torch.is_storage, torch.serialization.normalize_storage_type) == before
