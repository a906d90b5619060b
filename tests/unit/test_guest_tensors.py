"""Remote tensors behave as tensors: values, views, in-place changes, printing, copying, errors."""

import copy
import io
import pickle
import sys
from collections import deque
from typing import Any

import pytest
import torch
from inprocess_stream import InProcessStream
from remote_device import same

from dgsf.errors import OpNotAllowed, UsageError
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.tensor import Handle


def test_factories_make_what_they_say(device):
    same(torch.zeros(2, 3, device=device), torch.zeros(2, 3))
    same(torch.arange(0, 1, 0.25, device=device), torch.arange(0, 1, 0.25))
    same(torch.arange(0, 1, 0.5, device=device), torch.arange(0, 1, 0.5))
    same(torch.full((2,), 7, device=device), torch.full((2,), 7))
    same(torch.eye(3, device=device, dtype=torch.int64), torch.eye(3, dtype=torch.int64))
    same(torch.tensor([[1, 2], [3, 4]], device=device), torch.tensor([[1, 2], [3, 4]]))


def test_a_copy_to_the_device_is_one_upload(device, stream):
    local = torch.randn(3, 4)
    same(local.to(device), local)
    assert stream.calls == ["upload"]


def test_strides_survive_both_ways(device):
    local = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    remote = local.to(device)
    assert remote.stride() == local.stride()
    assert remote.cpu().stride() == local.stride()
    same(remote, local)


def test_a_known_key_waits_for_nothing(device, stream):
    x = torch.ones(3, 3, device=device)
    for _ in range(3):
        y = (x * 2.5 + 1).relu().sum(0)
    assert stream.waits == 0
    assert y.tolist() == [10.5] * 3


def test_numbers_of_different_types_are_different_keys(device):
    x = torch.ones(2, dtype=torch.int64, device=device)
    for number in (1, True, 1.0, 2, 2.0, 1 + 0j):
        same(x * number, torch.ones(2, dtype=torch.int64) * number)


def test_views_share_memory(device):
    base = torch.zeros(4, 4, device=device)
    base[1] += 1
    base.t()[2] = 5
    base.view(2, 8)[1, 0] = 9
    expected = torch.zeros(4, 4)
    expected[1] += 1
    expected.t()[2] = 5
    expected.view(2, 8)[1, 0] = 9
    same(base, expected)


def test_offsets_of_views_are_right(device):
    remote, local = torch.arange(24.0, device=device).view(4, 6), torch.arange(24.0).view(4, 6)
    for cut in (lambda t: t[2], lambda t: t[1:, 2:], lambda t: t[2][3:], lambda t: t.t()[4], lambda t: t[3, 5]):
        assert cut(remote).storage_offset() == cut(local).storage_offset()
        assert cut(remote).stride() == cut(local).stride()
        same(cut(remote), cut(local))
    strided = remote[1:].as_strided((2, 2), (6, 1))
    assert strided.storage_offset() == local[1:].as_strided((2, 2), (6, 1)).storage_offset()
    same(strided, local[1:].as_strided((2, 2), (6, 1)))


def test_metadata_follows_changes_in_place(device):
    x = torch.arange(6.0, device=device).view(2, 3)
    other = x.detach()
    x.t_()
    assert x.shape == (3, 2) and other.shape == (2, 3)
    x.unsqueeze_(0)
    same(x, torch.arange(6.0).view(2, 3).t().unsqueeze(0))
    same(other, torch.arange(6.0).view(2, 3))
    out = torch.empty(0, device=device)
    torch.add(x, x, out=out)
    assert out.shape == (1, 3, 2)
    assert x.clone().resize_(2, 2).shape == (2, 2)


def test_values_decide_sizes_where_they_must(device, stream):
    x = torch.tensor([3.0, -1.0, 3.0, 0.5], device=device)
    same(x[x > 0], torch.tensor([3.0, 3.0, 0.5]))
    assert x.nonzero().shape == (4, 1)
    same(x.unique(), torch.tensor([-1.0, 0.5, 3.0]))
    assert torch.equal(x, x.clone()) and not torch.equal(x, x + 1)
    assert stream.waits > 0


def test_single_values_come_home(device):
    x = torch.arange(4.0, device=device)
    assert x.sum().item() == 6.0 and int(x[2]) == 2 and bool((x > 2).any())
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert f"{x.sum():.1f}" == "6.0"
    assert repr(x) == "tensor([0., 1., 2., 3.], device='dgsf:0')"
    with pytest.raises(TypeError, match=r"Use Tensor.cpu\(\)"):
        x.numpy()
    assert x.numpy(force=True).tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("make", [torch.tensor, torch.as_tensor, torch.Tensor])
def test_a_tensor_is_made_of_single_remote_values(make, device):
    x = torch.arange(4.0, device=device)
    assert torch.equal(make([x[1], x.sum()]), torch.tensor([1.0, 6.0]))
    assert torch.equal(make([[x[1], 2.0], [x[3:4], 0.0]]), torch.tensor([[1.0, 2.0], [3.0, 0.0]]))
    if make is not torch.Tensor:
        same(make([x[1], x.sum()], device=device), torch.tensor([1.0, 6.0]))
        assert make([x[1].long(), x[2].long()]).dtype is torch.int64
        assert make([x[1] > 0, x[0] > 0]).tolist() == [True, False]


def test_the_wish_for_pinned_memory_is_dropped(device):
    assert torch.zeros(2, pin_memory=True).device.type == "cpu" and not torch.empty(2, pin_memory=True).is_pinned()
    x = torch.ones(2, device=device, requires_grad=True)
    for made in (torch.empty_like(x, device="cpu", pin_memory=True), torch.tensor([1.0, 2.0], pin_memory=True),
                 torch.ones(1).new_empty(2, pin_memory=True), torch.randn(2, pin_memory=True)):  # fmt: skip
        assert made.device.type == "cpu" and made.shape == (2,)
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        y = x.exp() * x
    y.sum().backward()
    same(x.grad, torch.full((2,), 2 * torch.e))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of TorchScript as such
def test_functions_that_make_tensors_keep_their_names(device):
    assert pickle.loads(pickle.dumps(torch.zeros)) is torch.zeros
    assert torch.equal(torch.jit.script(_three)(torch.ones(2)), torch.full((2,), 3.0))


def _three(x: torch.Tensor) -> torch.Tensor:
    return x + torch.full_like(x, 2.0) + torch.zeros(2)


def test_complex_numbers(device):
    local = torch.randn(3, dtype=torch.complex64)
    remote = local.to(device)
    same(remote.conj() * 2, local.conj().resolve_conj() * 2)
    same(remote.conj().imag, local.conj().imag.resolve_neg())
    same(torch.view_as_real(remote)[1], torch.view_as_real(local)[1])


def test_cpu_scalars_and_indices_mix_in_others_do_not(device):
    x = torch.ones(3, device=device)
    same(x * torch.tensor(2.0), torch.full((3,), 2.0))
    same(x[torch.tensor([0, 2])], torch.ones(2))
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(3)


def test_wrong_shapes_raise_torchs_own_error_at_once(device):
    with pytest.raises(RuntimeError, match="must match the size"):
        torch.ones(3, device=device) + torch.ones(4, device=device)
    with pytest.raises(IndexError):
        torch.ones(3, device=device)[5]


def test_copies_outlive_the_session(stream):
    with bind(stream) as device:
        x = torch.arange(3.0, device=device, requires_grad=True)
        deep = copy.deepcopy(torch.nn.Parameter(x.detach()))
        assert isinstance(deep, torch.nn.Parameter) and deep.requires_grad
        packed = pickle.dumps({"x": x})
        file = io.BytesIO()
        torch.save({"x": x, "p": deep}, file)
    assert pickle.loads(packed)["x"].tolist() == [0.0, 1.0, 2.0]
    file.seek(0)
    loaded = torch.load(file)
    assert loaded["x"].device.type == "cpu" and isinstance(loaded["p"], torch.nn.Parameter)


def test_a_checkpoint_is_loaded_to_the_device(device):
    file = io.BytesIO()
    torch.save({"a": [torch.ones(2)], "n": 3}, file)
    file.seek(0)
    loaded = torch.load(file, map_location=device)
    same(loaded["a"][0], torch.ones(2))
    assert loaded["n"] == 3


def test_nothing_is_left_when_tensors_go(device, stream):
    x = torch.ones(8, device=device)
    y = [x + i for i in range(10)]
    z = y[0].view(2, 4).detach()
    del x, y, z
    assert not stream.tensors


def test_there_is_one_device_and_only_while_attached(device, stream):
    with pytest.raises(RuntimeError, match="only one remote device"):
        torch.ones(2, device="dgsf:1")
    with pytest.raises(UsageError, match="attached already"), bind(InProcessStream()):
        pass


def test_tensors_of_an_ended_session_are_refused():
    with bind(InProcessStream()) as device:
        old = torch.ones(2, device=device)
        old.add_(1)
    with pytest.raises(UsageError):
        old + 1
    with bind(InProcessStream()) as device, pytest.raises(UsageError, match="session has ended"):
        old + torch.ones(2, device=device)
    with pytest.raises(UsageError, match="no remote device is attached"):
        torch.ones(2, device="dgsf")


def test_the_next_session_starts_from_nothing():
    streams = [InProcessStream(), InProcessStream()]
    for stream in streams:
        with bind(stream) as device:
            x = torch.zeros(2, 3, device=device) + 1
            assert x.tolist() == [[1.0] * 3] * 2
            x.unsqueeze_(0)
    assert streams[0].calls == streams[1].calls


def test_what_cannot_live_there_is_refused_clearly(device):
    with pytest.raises(OpNotAllowed, match="dense"):
        torch.eye(3, device=device).to_sparse()
    with pytest.raises(AttributeError, match="no bytes in this process"):
        torch.eye(3, device=device).untyped_storage().tolist()
    with pytest.raises(TypeError, match="move it there first"):
        torch.nn.Parameter(torch.ones(2, device=device)).data = torch.ones(2)


def test_data_can_be_exchanged(device):
    parameter = torch.nn.Parameter(torch.ones(2, device=device))
    parameter.data = torch.zeros(3, device=device)
    same(parameter, torch.zeros(3))


def test_random_numbers_follow_seeds_and_generators(device):
    torch.manual_seed(5)
    first = torch.rand(4, device=device).cpu()
    torch.manual_seed(5)
    assert torch.equal(torch.rand(4, device=device).cpu(), first)
    state = torch.dgsf.get_rng_state()
    second = torch.rand(4, device=device).cpu()
    torch.dgsf.set_rng_state(state)
    assert torch.equal(torch.rand(4, device=device).cpu(), second)
    generator = torch.Generator(device=device).manual_seed(1)
    expected = torch.randn(3, generator=torch.Generator().manual_seed(1))
    same(torch.randn(3, device=device, generator=generator), expected)


def test_cpu_code_goes_on_as_before(device):
    x = torch.randn(4, 4, requires_grad=True)
    (x @ x).sum().backward()
    assert type(x.grad) is torch.Tensor and not x.is_pinned()
    linear = torch.nn.Linear(2, 2)
    before = linear.weight
    assert linear.double().weight is before and type(before) is torch.nn.Parameter
    torch.manual_seed(0)
    with torch.random.fork_rng():
        torch.rand(1)
    assert isinstance(torch.default_generator, torch.Generator)


def test_a_resized_out_takes_the_memory_order_that_the_device_gave_it(device):
    local, turned = torch.empty(0), torch.arange(12.0).view(3, 4).t()
    remote = torch.empty(0, device=device)
    torch.add(turned, 1, out=local)
    torch.add(torch.arange(12.0).view(3, 4).to(device).t(), 1, out=remote)
    assert remote.stride() == local.stride()
    same(remote.reshape(-1), local.reshape(-1))


def test_complex_matrix_products_have_gradients(device):
    local = torch.randn(3, 3, dtype=torch.complex64, requires_grad=True)
    remote = local.detach().to(device).requires_grad_()
    (local.conj() @ local).abs().sum().backward()
    (remote.conj() @ remote).abs().sum().backward()
    same(remote.grad, local.grad)


@pytest.mark.parametrize("view", [
    lambda x: x[None], lambda x: x.view(-1), lambda x: x.t(), lambda x: x[0], lambda x: x.detach(),
    lambda x: x.reshape(6), lambda x: x.split(1)[1], lambda x: x.unbind(1)[0], lambda x: x.expand(4, 2, 3),
    lambda x: x.t().reshape(6),
])  # fmt: skip
@pytest.mark.parametrize("learned", [False, True])
def test_views_of_ordinary_tensors_in_inference_mode(view, learned, device):
    here = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]).requires_grad_(learned)
    there = here.detach().to(device).requires_grad_(learned)
    for _ in range(2):
        with torch.inference_mode():
            expected, found = view(here), view(there)
            assert found.is_inference() == expected.is_inference()
            assert torch.equal((found + 1).cpu(), expected + 1)
    with torch.inference_mode():
        there.detach().add_(1)
        assert there.t()[0].tolist() == [1.0, 4.0]


@pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning")  # torch's own, on the CPU
def test_an_encoder_takes_a_mask_of_padding_without_nested_tensors(device):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 2).eval()
    words, padding = torch.randn(3, 5, 16), torch.arange(5)[None] >= torch.tensor([5, 3, 2])[:, None]
    with torch.no_grad():
        expected = encoder(words, src_key_padding_mask=padding)
        found = encoder.to(device)(words.to(device), src_key_padding_mask=padding.to(device)).cpu()
    torch.testing.assert_close(found[~padding], expected[~padding])


def test_the_end_of_a_tensor_runs_no_python_in_which_a_ctrl_c_would_be_lost():
    freed: deque[int] = deque()
    handles = [Handle(7, freed.append), Handle(-1, freed.append), Handle(-1, freed.append)]
    handles[1].become(8)
    entered: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            entered.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        handles.clear()
    finally:
        sys.setprofile(None)
    assert sorted(freed) == [7, 8]
    assert entered == []


def test_the_class_of_a_parameter_makes_parameters(device):
    module = torch.nn.Linear(2, 2).to(device)
    for old, wants in ((module.weight, True), (module.bias.requires_grad_(False), False)):
        new = type(old)(torch.ones(2, device=device), requires_grad=old.requires_grad)
        assert isinstance(new, torch.nn.Parameter) and new.requires_grad is wants and new.device.type == device.type
    kept = type(old)(torch.ones(2, device=device), **old.__dict__)
    assert isinstance(kept, torch.nn.Parameter) and kept.tolist() == [1.0, 1.0]
    local = type(old)(torch.ones(2), requires_grad=False)
    assert isinstance(local, torch.nn.Parameter) and local.device.type == "cpu"
    with pytest.raises(TypeError, match="add requires_grad="):
        type(old)(torch.ones(2, device=device))


def test_two_tensors_are_set_to_the_same_only_if_they_are_the_same_part_of_one_memory(device):
    a = torch.arange(6.0, device=device)
    assert a.is_set_to(a) and a.is_set_to(a.detach()) and a.is_set_to(a.view(6))
    assert not a.is_set_to(a.clone()) and not a.is_set_to(a.view(2, 3)) and not a[1:3].is_set_to(a[2:4])
    assert torch.empty(2, device=device).set_(a).is_set_to(a) and a[1:3].is_set_to(a[1:3])


@pytest.mark.parametrize("make", [
    lambda d: torch.arange(16.0).view(2, 8).div(3).half().to(d), lambda d: torch.arange(9.0).to(d).requires_grad_() * 1,
    lambda d: torch.nn.Parameter(torch.arange(11.0).to(d)), lambda d: torch.ones(0, 3, dtype=torch.half).to(d),
    lambda d: torch.zeros(30, 50, 50, dtype=torch.half).to(d), lambda d: torch.tensor(1.5, dtype=torch.half).to(d),
])  # fmt: skip
def test_lines_are_broken_where_torch_breaks_its_own(device, make):
    remote = repr(make(device))
    lines = remote.removeprefix("Parameter containing:\n").splitlines()
    assert lines[0].startswith("tensor(") and max(map(len, lines)) <= 80 and "device='dgsf:0'" in remote
    assert all(line.index(line.strip()) == len("tensor(") for line in lines[1:] if line.strip()[:1].isalpha())
    bare = "".join(remote.split()).replace(",device='dgsf:0'", "")
    assert bare == "".join(repr(make("cpu")).split())


def test_others_errors_call_it_a_tensor_and_its_class_is_found_by_pickle(device):
    x = torch.ones(2, device=device)
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'nothing'"):
        _ = x.nothing
    assert pickle.loads(pickle.dumps(type(x))) is type(x) is copy.deepcopy(type(x))
    assert repr(x) == f"tensor([1., 1.], device='{device}')"
