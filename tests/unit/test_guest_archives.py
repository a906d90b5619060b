"""`torch.save` of remote tensors: what is tied stays tied, and is fetched and written once."""

import copy
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


def _base(x):
    return {"head": x[2:5], "all": x}


def _overlapping(x):
    return [x[:5], x[3:8]]


def _chained(x):
    return [x[6:9], x[4:7], x[2:5], x[0:3]]


def _columns(x):
    return [x.view(5, 2)[:, 0], x.view(5, 2)[:, 1], x.view(5, 2).t()]


def _spread(x):
    return [x[1:2].expand(3), x[:4], x[5:]]


def _alike(x):
    return [x[::3], x[::3].detach(), x[1::3]]


class _Own(torch.Tensor):
    pass


class _Holder:
    def __init__(self, x):
        self.part = x[4:]
        self.tensor = x[:6].as_subclass(_Own)


def _in_objects(x):
    return {"holder": _Holder(x), "again": x[5:6]}


def _tensors(content):
    if isinstance(content, dict):
        return [each for value in content.values() for each in _tensors(value)]
    return [content.part, content.tensor] if isinstance(content, _Holder) else _listed(content)


def _listed(content):
    return content if isinstance(content, list) else [content]


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("build", [_base, _overlapping, _chained, _columns, _spread, _alike, _in_objects])
def test_what_overlaps_stays_tied_in_whatever_order_it_comes(device, build, zipped):
    found = {}
    for where in ("cpu", device):
        content, _ = through_a_file(build(torch.arange(10.0, device=where)), _use_new_zipfile_serialization=zipped)
        found[where] = _tensors(content)
        for tensor in found[where]:  # each write is seen by just those that share its memory
            tensor[..., :1].add_(100)
    for ours, torchs in zip(found[device], found["cpu"], strict=True):
        assert ours.device.type == "cpu" and type(ours) is type(torchs) and torch.equal(ours, torchs)


def test_only_what_a_save_holds_of_a_memory_is_written(device, stream):
    large = torch.arange(100_000.0, device=device)
    waits = stream.waits
    loaded, size = through_a_file([large[10:20], large[15:25], large[90_000:90_010]])
    assert size < 4000 and stream.waits == waits + 2
    loaded[0].zero_()
    assert loaded[1].tolist() == [0.0] * 5 + list(range(20, 25)) and loaded[2][0] == 90_000
    assert through_a_file(large.view(100, 1000)[:, 0])[1] < 4000


class _Fussy:
    """Can be pickled once."""

    def __init__(self):
        self.times = 0

    def __reduce__(self):
        self.times += 1
        if self.times > 1:
            raise ValueError("once more")
        return (str, ())


def test_what_cannot_be_rehearsed_is_fetched_whole(device):
    x = torch.arange(10.0, device=device)
    _, head, tail = through_a_file([_Fussy(), x[:5], x[3:]])[0]
    head.zero_()
    assert tail.tolist() == [0.0, 0.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    with pytest.raises((AttributeError, pickle.PicklingError)):
        torch.save([x[:5], lambda: None], io.BytesIO())
    assert through_a_file(x[:5])[0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_an_optimizers_state_and_parameters_with_attributes(device):
    module = torch.nn.Linear(2, 2).to(device)
    flat = torch.arange(6.0, device=device)
    module.weight.part, module.weight.data = flat[1:3], flat[:4].view(2, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    module(torch.ones(1, 2, device=device)).sum().backward()
    optimizer.step()
    loaded, state, again = through_a_file([module, optimizer.state_dict(), module.weight])[0]
    assert again is loaded.weight and all(torch.is_tensor(each["momentum_buffer"]) for each in state["state"].values())
    with torch.no_grad():
        again.zero_()
    assert again.part.tolist() == [0.0, 0.0]


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


def test_what_was_loaded_is_saved_and_copied_as_it_is_tied(device):
    x, file = torch.arange(10.0), io.BytesIO()
    torch.save([x[2:5], x, x[3:6]], file)
    file.seek(0)
    new = torch.load(file, map_location=device)
    for again in (through_a_file(new)[0], copy.deepcopy(new)):
        again[1].zero_()
        assert again[0].tolist() == again[2].tolist() == [0.0] * 3
    assert new[0].tolist() == [2.0, 3.0, 4.0]
