"""`torch.load` to the device does what it does on the CPU: what was tied is tied, in whatever object it is."""

from __future__ import annotations

import io
import pickle
import threading
from dataclasses import dataclass

import pytest
import torch
from inprocess_stream import InProcessStream
from remote_device import same
from torch import nn

from dgsf.errors import OpNotAllowed
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.tensor import RemoteTensor
from dgsf.remoting.guest.uploads import Uploads

BIG = 40_000  # numbers: more than is sent inline
FORMATS = [{"_use_new_zipfile_serialization": True}, {"_use_new_zipfile_serialization": False}]


def a_file(content, **options):
    file = io.BytesIO()
    torch.save(content, file, **options)
    file.seek(0)
    return file


def loaded(content, where, **options):
    return torch.load(a_file(content, **options), map_location=where, weights_only=False)


@dataclass
class Replay:
    seen: torch.Tensor


class Looks:
    """Computes with its tensor, and loads another file, while it is loaded."""

    def __init__(self, tensor, inner=b""):
        self.tensor, self.inner = tensor, inner

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.total = self.tensor.sum()
        self.other = torch.load(io.BytesIO(self.inner)) if self.inner else None


class Breaks:
    def __init__(self):
        self.state = 1

    def __setstate__(self, state):
        raise KeyError("broken")


def _view(x):
    return [x, x[2:5]]


def _view_first(x):
    return [x[2:5], x, x[3:6]]


def _parts(x):
    return [x[:5], x[3:8], x.view(2, 5).t()]


def _turned(x):
    return [x.view(2, 5).t(), x]


def _spread(x):
    return [x[:1].expand(4), x]


def _with_gaps(x):
    return [x[::2], x[1::2], x]


def _empty(x):
    return [x[:0], torch.empty(0, 3), x, torch.empty(0)]


def _detached(x):
    return [x, x.detach(), x]


@pytest.mark.parametrize("options", FORMATS)
@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("build", [_view, _view_first, _parts, _turned, _spread, _with_gaps, _empty, _detached])
def test_what_is_tied_in_a_file_is_tied_on_the_device(device, build, weights_only, options):
    content = build(torch.arange(10.0))
    found = {}
    for where in ("cpu", "dgsf"):
        found[where] = torch.load(a_file(content, **options), map_location=where, weights_only=weights_only)
        for tensor in found[where]:  # each write is seen by just those that share its memory
            tensor[..., :1].add_(100)
    for remote, local in zip(found["dgsf"], found["cpu"], strict=True):
        same(remote, local)
        assert remote.stride() == local.stride() and remote.storage_offset() == local.storage_offset()
        assert remote._base is None and remote.is_leaf


@pytest.mark.parametrize("options", FORMATS)
def test_a_model_and_its_optimizer_go_on_training(device, options):
    def trained(where):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
        model[2].weight = model[0].weight
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for place in ("cpu", where):
            model(torch.ones(3, 2, device=place) * torch.arange(3.0, device=place)[:, None]).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            model, optimizer, weight = loaded((model, optimizer, model[0].weight), where, **options)
            assert weight is model[0].weight is model[2].weight and isinstance(weight, nn.Parameter)
            assert all(each["exp_avg"].device.type == where for each in optimizer.state.values())
        return model.state_dict()

    remote, local = trained("dgsf"), trained("cpu")
    for name, expected in local.items():
        same(remote[name], expected)


def test_tensors_in_any_object_come_to_the_device(device):
    module = nn.LSTM(2, 3)
    module.mask, module.weight_ih_l0.tag = torch.ones(2), {"seen": torch.ones(1)}
    content = {
        "replay": Replay(torch.arange(3.0)),
        "module": module,
        "max": torch.ones(2, 3).max(dim=1),
        "set": {torch.ones(1)},
        "buffer": nn.Buffer(torch.ones(2)),
        "frozen": nn.Parameter(torch.ones(2), requires_grad=False),
    }
    new = loaded(content, "dgsf")
    same(new["replay"].seen, torch.arange(3.0))
    module = new["module"]
    assert {each.device for each in (*module.parameters(), module.mask)} == {device}
    same(module.weight_ih_l0.tag["seen"], torch.ones(1))
    assert module(torch.ones(1, 1, 2, device=device))[0].device == device
    assert type(new["max"]) is torch.return_types.max and new["max"].indices.device == device
    assert next(iter(new["set"])).device == new["buffer"].device == new["frozen"].device == device
    assert isinstance(new["frozen"], nn.Parameter) and not new["frozen"].requires_grad


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("options", FORMATS)
def test_all_kinds_of_tensors(device, weights_only, options):
    z = torch.tensor([1 + 2j, 3 - 1j])
    content = [
        z.conj(),
        z.clone().conj().imag,
        torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.ones(3, dtype=torch.bfloat16, requires_grad=True),
        torch.tensor(3),
        nn.Parameter(torch.ones(2)),
    ]
    found = torch.load(a_file(content, **options), map_location="dgsf", weights_only=weights_only)
    for remote, local in zip(found, content, strict=True):
        assert (remote.dtype, remote.requires_grad) == (local.dtype, local.requires_grad)
        assert (remote.is_conj(), remote.is_neg(), remote.stride()) == (local.is_conj(), local.is_neg(), local.stride())
        assert torch.equal(remote.detach().cpu(), local.detach())
        assert torch.equal((remote.detach() * 2).cpu(), local.detach() * 2)


@pytest.mark.parametrize("weights_only", [True, False])
def test_types_that_have_no_storages_of_their_own(device, weights_only):
    x = torch.tensor([1, 2, 3], dtype=torch.uint16)
    part, whole = torch.load(a_file([x[1:], x]), map_location="dgsf", weights_only=weights_only)
    whole.zero_()
    assert part.device == device and part.dtype is torch.uint16 and part.tolist() == [0, 0]


@pytest.mark.filterwarnings("ignore::UserWarning")  # of torch, of such tensors as such
def test_what_cannot_live_there_is_refused_by_name(device):
    for content, named in (
        (torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "quantised"),
        (torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged), "nested"),
    ):
        with pytest.raises(OpNotAllowed, match=named):
            loaded(content, "dgsf")
        assert loaded([content], "cpu")[0].device.type == "cpu"


def test_a_mapped_file(device, tmp_path):
    path = tmp_path / "weights.pt"
    x = torch.arange(float(BIG))
    torch.save({"part": x[10:20], "all": x}, path)
    for weights_only in (True, False):
        new = torch.load(path, map_location="dgsf", mmap=True, weights_only=weights_only)
        same(new["all"], x)
        new["all"].zero_()
        assert not new["part"].cpu().any()
    assert torch.load(path, mmap=True)["part"].tolist() == x[10:20].tolist()


def test_every_way_to_say_where(device):
    file = a_file({"a": torch.ones(2), "b": torch.arange(2)})
    restore = torch.serialization.default_restore_location
    for where in ("dgsf", "dgsf:0", device, {"cpu": "dgsf"}, {"cpu": device}, lambda s, _: restore(s, "dgsf")):
        file.seek(0)
        assert {each.device for each in torch.load(file, where).values()} == {device}
    for where in (None, "cpu", {"cuda:0": "dgsf"}, lambda storage, _: storage, lambda storage, _: None):
        file.seek(0)
        assert {each.device.type for each in torch.serialization.load(file, map_location=where).values()} == {"cpu"}
    file.seek(0)
    some = torch.load(file, lambda storage, _: restore(storage, "dgsf") if storage.nbytes() == 8 else storage)
    assert (some["a"].device, some["b"].device.type) == (device, "cpu")
    file.seek(0)
    with pytest.raises(RuntimeError, match=r"device_count\(\) is 1"):
        torch.load(file, "dgsf:1")


def test_objects_that_compute_and_load_while_they_are_loaded(device):
    there = loaded([Looks(torch.arange(4.0), a_file(torch.ones(2)).getvalue()), torch.ones(3)], "dgsf")
    assert there[0].total.item() == 6.0 and there[0].total.device == there[1].device == device
    assert there[0].other.device.type == "cpu"


def test_a_load_that_fails_leaves_nothing_behind(device):
    with pytest.raises(KeyError):
        loaded([torch.ones(BIG), Breaks()], "dgsf")
    assert loaded(torch.ones(2), None).device.type == "cpu" and loaded(torch.ones(2), "dgsf").device == device
    assert pickle.loads(pickle.dumps(torch.ones(2))).device.type == "cpu"


def test_loads_in_several_threads_know_their_own_place(device):
    file, found, go = a_file([torch.ones(BIG), torch.arange(3.0)]).getvalue(), {}, threading.Barrier(4)

    def load(number):
        go.wait(60)
        found[number] = torch.load(io.BytesIO(file), map_location="dgsf" if number % 2 else "cpu")

    threads = [threading.Thread(target=load, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    for number, tensors in found.items():
        assert {each.device.type for each in tensors} == {"dgsf" if number % 2 else "cpu"}
        assert [each.sum().item() for each in tensors] == [BIG, 3.0]
    assert len(found) == 4


def test_what_is_loaded_is_sent_once_and_without_a_copy(device, stream, monkeypatch):
    sent, uploads = [], Uploads(by_hash=True)
    upload = stream.upload

    def noting(tensor):
        record, _, data = uploads.plan(tensor, 1)
        assert data is None  # weights are always named
        sent.append((record[5], tensor.data_ptr()))
        return upload(tensor.clone())

    monkeypatch.setattr(stream, "upload", noting)
    x = torch.randn(BIG)
    for options in FORMATS:
        new = loaded({"row": x[:10], "all": x, "tied": x}, "dgsf", **options)
        same(new["all"], x)
        ((digest, address),) = sent
        kept = torch.frombuffer(uploads.contents[digest], dtype=torch.float32)
        assert kept.data_ptr() == address and torch.equal(kept, x)
        sent.clear()
        uploads = Uploads(by_hash=True)


def test_under_the_alias_a_file_says_cuda_itself():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
        x = torch.arange(10.0)
        file, pickled = a_file(_view_first(x)).getvalue(), pickle.dumps(x)
    with bind(InProcessStream(), alias="cuda"):
        for where in (None, lambda storage, _: None, lambda storage, _: storage.cuda(), "cuda", {"cuda:0": "cuda:0"}):
            new = torch.load(io.BytesIO(file), map_location=where)
            new[1].zero_()
            assert new[0].is_cuda and new[0].tolist() == [0.0] * 3
        assert isinstance(pickle.loads(pickled), RemoteTensor)
        assert torch.load(io.BytesIO(file), map_location="cpu")[0].device.type == "cpu"


def test_torch_is_as_before_afterwards():
    rebuilding = torch._utils, torch._weights_only_unpickler._get_allowed_globals()

    def state():
        names = ("_rebuild_tensor", "_rebuild_tensor_v3", "_rebuild_qtensor", "set_tensor_metadata")
        return (
            [getattr(rebuilding[0], name) for name in names],
            dict(rebuilding[1]),
            list(torch.serialization._package_registry),
            torch.load,
            torch.serialization.load,
        )

    before = state()
    with bind(InProcessStream(), alias="cuda"):
        assert state() != before
        torch.load(a_file(torch.ones(2)), map_location="cuda")
    assert state() == before
