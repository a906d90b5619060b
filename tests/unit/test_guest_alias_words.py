"""The older and rarer words of programs for CUDA, under the alias."""

import io

import pytest
import torch
from inprocess_stream import InProcessStream
from remote_device import same
from torch.profiler import ProfilerActivity, profile

from dgsf.errors import OpNotAllowed
from dgsf.remoting.guest.attach import bind

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "FutureWarning", "UserWarning")
]


@pytest.fixture
def cuda():
    stream = InProcessStream()
    with bind(stream, alias="cuda") as device:
        yield device
    stream.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.normal(0.0, 1.0, (2,), device="cuda"),
        lambda: torch.fft.fftfreq(4, device="cuda"),
        lambda: torch.fft.rfftfreq(4, device="cuda:0"),
        lambda: torch.signal.windows.hann(4, device="cuda"),
        lambda: torch.randperm(4, device="cuda"),
    ],
)
def test_every_function_that_takes_a_device_knows_the_name(make, cuda):
    assert make().device == cuda


def test_random_numbers_by_their_own_module(cuda):
    random = torch.cuda.random
    random.manual_seed(3)
    state = random.get_rng_state()
    first = torch.rand(4, device="cuda").cpu()
    random.set_rng_state(state)
    assert torch.equal(torch.rand(4, device="cuda").cpu(), first)
    random.set_rng_state_all(random.get_rng_state_all())


def test_types_name_the_device_too(cuda):
    x = torch.ones(2)
    for name in ("torch.cuda.FloatTensor", torch.cuda.FloatTensor, x.cuda().type()):
        assert x.type(name).device == cuda and x.type(name).dtype is torch.float32
    assert x.cuda().type("torch.cuda.LongTensor").type() == "torch.cuda.LongTensor"
    assert x.type(torch.float64).dtype is torch.float64 and x.type() == "torch.FloatTensor"
    assert x.type("torch.DoubleTensor").dtype is torch.float64


def test_tensors_are_made_by_their_types(cuda):
    same(torch.cuda.FloatTensor([1, 2]), torch.tensor([1.0, 2.0]))
    same(torch.cuda.LongTensor([1, 2]), torch.tensor([1, 2]))
    assert torch.cuda.HalfTensor(2, 3).shape == (2, 3) and torch.cuda.BoolTensor([True]).is_cuda
    made = torch.cuda.FloatTensor(2)
    assert isinstance(made, torch.cuda.FloatTensor) and not isinstance(made, torch.cuda.LongTensor)
    assert not isinstance(torch.ones(2), torch.cuda.FloatTensor) and isinstance(torch.ones(2), torch.FloatTensor)


def test_streams_and_events_are_names_for_the_one_order(cuda):
    x, stream = torch.ones(2, device="cuda"), torch.cuda.Stream(priority=-1)
    assert isinstance(stream, torch.cuda.Stream) and stream.device == cuda and stream.cuda_stream == 0
    stream.wait_stream(torch.cuda.current_stream())
    with stream, torch.cuda.stream(stream), torch.cuda.StreamContext(stream):
        y = x * 2
    y.record_stream(stream)
    torch.cuda.set_stream(stream)
    assert torch.cuda.current_stream() == torch.cuda.default_stream() == stream and y.sum().item() == 4
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.streams.Event(enable_timing=True)
    begin.record(stream)
    end.record(stream)
    assert begin.elapsed_time(end) >= 0 and end.query()


def test_properties_have_the_usual_fields(cuda):
    found = torch.cuda.get_device_properties(0)
    assert (found.major, found.minor, found.warp_size, found.total_memory) == (8, 0, 32, 1 << 30)
    assert found.max_threads_per_multi_processor and found.L2_cache_size and found.multi_processor_count


@pytest.mark.parametrize("activities", [None, [ProfilerActivity.CPU, ProfilerActivity.CUDA], [ProfilerActivity.CUDA]])
def test_a_profile_of_cuda_has_what_this_process_does(activities, cuda, capfd):
    with profile(activities=activities) as result:
        torch.ones(2, device="cuda").sum().item()
    assert "aten::sum" in result.key_averages().table(sort_by="cuda_time_total")
    with torch.autograd.profiler.profile(use_device="cuda") as result:
        torch.ones(2, device="cuda").sum().item()
    assert len(result.key_averages()) and len(capfd.readouterr().err) < 2000


def test_the_words_mean_the_real_cuda_again_afterwards():
    before = torch.cuda.FloatTensor, torch.Tensor.type, torch.normal, torch.cuda.Stream, torch.cuda.random.manual_seed
    with bind(InProcessStream(), alias="cuda"):
        pass
    now = torch.cuda.FloatTensor, torch.Tensor.type, torch.normal, torch.cuda.Stream, torch.cuda.random.manual_seed
    assert now == before


@pytest.fixture
def file():
    buffer = io.BytesIO()
    torch.save({"a": torch.arange(3.0), "b": torch.ones(2)}, buffer)
    buffer.seek(0)
    return buffer


def test_a_function_may_put_what_is_loaded_on_the_device(cuda, file):
    loaded = torch.load(file, map_location=lambda storage, location: storage.cuda(0))
    same(loaded["a"], torch.arange(3.0))
    file.seek(0)
    some = torch.load(file, map_location=lambda storage, _: storage.cuda() if storage.nbytes() == 12 else storage)
    same(some["a"], torch.arange(3.0))
    assert some["b"].device.type == "cpu"
    file.seek(0)
    assert torch.load(file, map_location=lambda storage, location: storage)["a"].device.type == "cpu"
    with pytest.raises(OpNotAllowed, match="has no storages"):
        torch.ones(2).untyped_storage().cuda()
    file.seek(0)
    with pytest.raises(RuntimeError, match="only one remote device"):
        torch.load(file, map_location=lambda storage, location: storage.cuda(1))


def test_the_default_type_names_a_device_until_it_is_gone():
    with bind(InProcessStream(), alias="cuda") as device:
        torch.set_default_tensor_type("torch.cuda.DoubleTensor")
        assert torch.ones(2).device == device and torch.ones(2).dtype is torch.float64
        torch.set_default_tensor_type(torch.FloatTensor)
        assert torch.ones(2).device.type == "cpu" and torch.ones(2).dtype is torch.float32
        torch.set_default_tensor_type(torch.cuda.FloatTensor)
        assert torch.ones(2).device == device
        with pytest.raises(TypeError, match="only floating-point"):
            torch.set_default_tensor_type("torch.cuda.LongTensor")
    assert torch.ones(2).device.type == "cpu" and torch.get_default_device().type == "cpu"


def test_a_default_device_is_taken_back_when_it_is_gone():
    with bind(InProcessStream()) as device:
        torch.set_default_device(device)
        assert torch.ones(2).device == device
    assert torch.ones(2).device.type == "cpu"


@pytest.mark.parametrize("make", [torch.jit.script, lambda m: torch.jit.trace(m, torch.ones(1, 2, device="cuda"))])
def test_scripted_modules_are_saved_as_copies_of_the_cpu(make, cuda, tmp_path):
    module = make(torch.nn.Linear(2, 2).cuda())
    expected, buffer = module(torch.ones(1, 2, device="cuda")).cpu(), io.BytesIO()
    torch.jit.save(module, buffer)
    module.save(str(tmp_path / "m.pt"))
    buffer.seek(0)
    torch.testing.assert_close(torch.jit.load(buffer, map_location="cpu")(torch.ones(1, 2)), expected)
    there = torch.jit.load(str(tmp_path / "m.pt"), map_location="cuda")
    same(there(torch.ones(1, 2, device="cuda")), expected)
    assert module.weight.is_cuda


def test_the_devices_own_generator_is_known(cuda):
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    generator.manual_seed(3)
    state, first = generator.get_state(), torch.rand(2, device="cuda", generator=generator)
    same(generator.set_state(state) and torch.rand(2, device="cuda"), first.cpu())
    torch.cuda.manual_seed(3)
    same(torch.rand(2, device="cuda"), first.cpu())


def test_streams_and_events_by_their_general_names(cuda):
    stream, event = torch.Stream("cuda"), torch.Event(device="cuda", enable_timing=True)
    event.record(stream)
    assert isinstance(stream, torch.Stream) and isinstance(stream, torch.cuda.Stream) and event.query()
    assert isinstance(event, torch.Event) and event.elapsed_time(stream.record_event(torch.Event("cuda"))) is not None


def test_a_scripted_module_from_a_file_moves_both_ways(cuda):
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).eval()), buffer)
    buffer.seek(0)
    module = torch.jit.load(buffer)
    expected = module(torch.ones(1, 2)).detach()
    same(module.to("cuda")(torch.ones(1, 2, device="cuda")), expected)
    assert all(each.is_cuda for each in module.state_dict().values())
    torch.testing.assert_close(module.cpu()(torch.ones(1, 2)).detach(), expected)


def test_weights_that_a_script_shares_are_shared_after_it_has_moved():
    tied = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False))
    tied[1].weight = tied[0].weight
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(tied), buffer)
    buffer.seek(0)
    with bind(InProcessStream(), alias="cuda"):
        there = torch.jit.load(buffer, map_location="cuda")
        assert len(list(there.parameters())) == 1
        again = io.BytesIO()
        torch.jit.save(there, again)
    again.seek(0)
    assert len(list(torch.jit.load(again).parameters())) == 1
