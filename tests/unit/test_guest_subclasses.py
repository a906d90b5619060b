"""Tensors and parameters of a program's own class: they can be moved, and no class is lost without a word."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from inprocess_stream import InProcessStream
from remote_device import same
from torch import nn

from dgsf.errors import OpNotAllowed
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.tensor import RemoteTensor


class Marked(torch.Tensor):
    """Keeps its class through every operation, as torch's default is."""

    def doubled(self):
        return self * 2


class Box(torch.Tensor):
    """After torchvision's tv_tensors: only a few methods keep the class, and what it knows of the picture."""

    kept = (torch.Tensor.to, torch.Tensor.clone, torch.Tensor.detach, torch.Tensor.requires_grad_)
    size_: int

    def __new__(cls, data, size_):
        return cls.wrap(torch.as_tensor(data), size_)

    @classmethod
    def wrap(cls, tensor, size_):
        box = tensor.as_subclass(cls)
        box.size_ = size_
        return box

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if not all(issubclass(cls, each) for each in types):
            return NotImplemented
        with torch._C.DisableTorchFunctionSubclass():
            out = func(*args, **(kwargs or {}))
        if func in cls.kept and isinstance(args[0], cls):
            return cls.wrap(out, args[0].size_) if not isinstance(out, cls) else out
        return out.as_subclass(torch.Tensor) if isinstance(out, cls) else out


class Own(nn.Parameter):
    def doubled(self):
        return self * 2


class Scaled(nn.Parameter):
    """Says itself how it is made."""

    made = 0

    def __new__(cls, data=None, requires_grad=True):
        new = super().__new__(cls, data, requires_grad)
        new.scale = 3
        return new

    def __init__(self, *_):
        Scaled.made += 1


class Renewed(torch.Tensor):
    def again(self):
        return type(self)(self)


class Inner(torch.Tensor):
    """Does operations itself."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Slotted(nn.Parameter):
    __slots__ = ("mark",)


@pytest.fixture(params=["", "cuda"])
def device(request):
    with bind(InProcessStream(), alias=request.param) as device:
        yield device


def is_both(tensor, kind):
    return isinstance(tensor, kind) and isinstance(tensor, RemoteTensor)


def test_a_tensor_of_another_class_keeps_it_on_the_device_and_on_its_way_back(device):
    x = torch.arange(3.0).as_subclass(Marked)
    there = x.to(device)
    assert is_both(there, Marked) and type(there).__name__ == "Marked" and there.device == device
    for value, expected in (
        (there.doubled(), x * 2),
        (there + torch.ones(3, device=device), x + 1),
        (there[1:], x[1:]),
    ):
        assert is_both(value, Marked)
        same(value.as_subclass(torch.Tensor), expected.as_subclass(torch.Tensor))
    back = there.cpu()
    assert type(back) is Marked and back.tolist() == [0, 1, 2]
    assert type(there.as_subclass(torch.Tensor)) is RemoteTensor
    assert repr(there).startswith("Marked([0., 1., 2.]")


def test_changes_in_place_are_of_the_tensor_itself(device):
    x = torch.ones(3).as_subclass(Marked).to(device)
    alike = x
    assert x.add_(1) is alike and x.tolist() == [2, 2, 2]
    x.resize_(2)
    assert x.shape == (2,) and x.tolist() == [2, 2]
    x.unsqueeze_(0)
    assert x.shape == (1, 2) and x.tolist() == [[2, 2]]


def test_gradients_flow_through_it(device):
    x = torch.ones(3, device=device, requires_grad=True)
    (x.as_subclass(Marked) * 3).sum().backward()
    same(x.grad, torch.full((3,), 3.0))


def test_a_class_with_a_say_in_torchs_functions_has_it_here_and_there(device):
    box = Box([1.0, 2.0], 7)
    moved, cast = box.to(device), box.to(torch.float64)
    assert type(cast) is Box and cast.size_ == 7  # CPU code is as it was
    assert is_both(moved, Box) and moved.size_ == 7
    assert type(moved * 2) is RemoteTensor and type(box * 2) is torch.Tensor
    again = moved.to(torch.float64)
    assert is_both(again, Box) and again.size_ == 7 and again.dtype is torch.float64
    back = moved.to("cpu")
    assert type(back) is Box and back.size_ == 7 and back.as_subclass(torch.Tensor).tolist() == [1, 2]


def test_parameters_of_another_class_keep_it_and_their_attributes(device):
    module = nn.Module()
    module.p = parameter = Own(torch.ones(2))
    parameter.mark = "no decay"
    module.to(device)
    assert module.p is parameter and is_both(parameter, Own) and parameter.mark == "no decay"
    parameter.doubled().sum().backward()
    same(parameter.grad, torch.full((2,), 2.0))
    torch.optim.SGD(module.parameters(), lr=1.0).step()
    same(parameter.detach(), torch.full((2,), -1.0))
    module.double()
    assert is_both(parameter, Own) and parameter.dtype is torch.float64
    module.cpu()
    assert type(parameter) is Own and parameter.mark == "no decay" and parameter.tolist() == [-1, -1]
    assert is_both(Own(torch.ones(2, device=device)), Own)


def test_attributes_of_plain_parameters_move_along(device):
    layer = nn.Linear(2, 2)
    layer.weight.no_decay = True
    layer.to(device)
    assert layer.weight.no_decay and layer.to("cpu").weight.no_decay


def test_files_keep_the_attributes_of_plain_tensors_and_parameters(device):
    module = nn.Linear(2, 2)
    module.weight.tag = "weights"
    plain = torch.ones(2, device=device)
    plain.tag = "plain"
    file = io.BytesIO()
    torch.save((module.to(device), plain), file)
    file.seek(0)
    loaded, tensor = torch.load(file, weights_only=False)
    assert (loaded.weight.tag, tensor.tag) == ("weights", "plain")
    assert type(loaded.weight) is nn.Parameter and vars(tensor) == {"tag": "plain"}


def test_copies_and_files_keep_the_class(device):
    x, parameter = Marked([1.0, 2.0]).to(device), Own(torch.ones(2, device=device))
    x.mark = parameter.mark = [3]
    for copied in (copy.deepcopy(x), copy.copy(x)):
        assert is_both(copied, Marked) and copied.mark == [3] and copied.tolist() == [1, 2]
    assert copy.deepcopy(x).mark is not x.mark and copy.copy(x).mark is x.mark
    assert is_both(copy.deepcopy(parameter), Own)
    file = io.BytesIO()
    torch.save({"x": x}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)["x"]
    assert type(loaded) is Marked and loaded.mark == [3] and loaded.tolist() == [1, 2]
    file.seek(0)
    assert is_both(torch.load(file, weights_only=False, map_location=device)["x"], Marked)


def test_a_parameter_that_says_how_it_is_made_is_copied_so(device):
    for where in ("cpu", device):
        module = nn.Module()
        module.p = Scaled(torch.ones(2, device=where), False)
        before = Scaled.made
        copied = copy.deepcopy(module).p
        assert Scaled.made == before + 1 and isinstance(copied, Scaled) and copied.scale == 3
        assert copied.device == module.p.device and not copied.requires_grad
        copied.zero_()
        assert module.p.tolist() == [1, 1]


def test_a_class_makes_another_of_itself(device):
    for where in ("cpu", device):
        x = torch.ones(2, device=where).as_subclass(Renewed)
        again = x.again()
        again.add_(1)
        assert isinstance(again, Renewed) and again.device == x.device and x.tolist() == [2, 2]
        assert is_both(again, Renewed) == (where == device)


@pytest.mark.parametrize(
    "move",
    [
        lambda device: torch.ones(2, device=device).as_subclass(Inner),
        lambda device: Slotted(torch.ones(2, device=device)),
        lambda device: nn.ParameterList([Slotted(torch.ones(2))]).to(device),
    ],
)
def test_a_class_that_cannot_live_there_is_refused(move, device):
    with pytest.raises(OpNotAllowed, match=r"as_subclass\(torch.Tensor\) instead"):
        move(device)


def test_classes_are_as_before_afterwards():
    before = nn.Parameter.__new__, RemoteTensor.__dict__.get("as_subclass")
    with bind(InProcessStream()) as device:
        Marked([1.0]).to(device), Own(torch.ones(1, device=device))
    assert before == (nn.Parameter.__new__, RemoteTensor.__dict__.get("as_subclass"))
    assert type(Own(torch.ones(1))) is Own and type(Marked([1.0]) + 1) is Marked
