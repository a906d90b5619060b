"""`torch.save` of remote tensors: what is tied stays tied, and is fetched and written once."""

import io
import pickle

import pytest
import torch


def through_a_file(content, **options):
    file = io.BytesIO()
    torch.save(content, file, **options)
    size = file.tell()
    file.seek(0)
    return torch.load(file, weights_only=False), size


def shares(one, other):
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


@pytest.mark.parametrize("zipped", [True, False])
def test_tied_weights_are_written_once_and_stay_tied(device, stream, zipped):
    module = torch.nn.Sequential(torch.nn.Linear(64, 64, bias=False), torch.nn.Linear(64, 64, bias=False)).to(device)
    module[1].weight = module[0].weight
    waits = stream.waits
    loaded, size = through_a_file(module.state_dict(), _use_new_zipfile_serialization=zipped)
    assert shares(loaded["0.weight"], loaded["1.weight"]) and size < 2 * module[0].weight.nbytes
    assert stream.waits == waits + 1
    assert torch.equal(loaded["1.weight"], module[0].weight.detach().cpu())
    whole, _ = through_a_file(module)
    assert whole[0].weight is whole[1].weight and whole[0].weight.requires_grad


def test_views_are_cut_out_of_what_came_before_them(device):
    x = torch.arange(12.0, device=device).view(3, 4)
    local = x.cpu()
    loaded, _ = through_a_file([x, x[1], x.t(), x[:, 2]])
    for one, expected in zip(loaded, [local, local[1], local.t(), local[:, 2]], strict=True):
        assert torch.equal(one, expected) and one.stride() == expected.stride()
    loaded[0].zero_()
    x = torch.arange(12.0, device=device)
    first, second = through_a_file([x, x[3:6]])[0]
    first.zero_()
    assert second.tolist() == [0.0] * 3


def test_a_view_alone_is_fetched_alone(device):
    large = torch.arange(10000.0, device=device)
    (one, same_again), size = through_a_file([large[3:5], large[3:5]])
    assert one.tolist() == [3.0, 4.0] and size < 4000 and shares(one, same_again)


def test_types_and_changes_are_kept_apart(device):
    x = torch.arange(4, device=device, dtype=torch.int32)
    whole, bits = through_a_file([x, x.view(torch.float32)])[0]
    assert whole.dtype is torch.int32 and bits.dtype is torch.float32
    x.add_(1)  # a later save fetches it again
    assert through_a_file(x)[0].tolist() == [1, 2, 3, 4]
    assert pickle.loads(pickle.dumps(x)).tolist() == [1, 2, 3, 4]


def test_files_of_the_cpu_are_as_before(device):
    x = torch.arange(4.0)
    whole, part = through_a_file([x, x[1:]])[0]
    assert shares(whole, part)
