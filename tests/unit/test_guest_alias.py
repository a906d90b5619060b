"""Programs that say cuda reach the remote device, and only while they are asked to."""

import pytest
import torch
from inprocess_stream import InProcessStream

from dgsf.errors import UsageError
from dgsf.remoting.guest.attach import bind
from dgsf.remoting.guest.tensor import RemoteTensor

# torch warns of its own past on the way
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "FutureWarning", "UserWarning")
]


def test_code_written_for_cuda_runs_on_the_remote_device():
    with bind(InProcessStream(), alias="cuda"):
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = torch.nn.Linear(2, 2).to(device)
        x = torch.ones(3, 2).cuda()
        out = model(x)
        assert isinstance(out, RemoteTensor) and out.is_cuda and out.device == torch.device("cuda", 0)
        assert torch.zeros(2, device="cuda").device == out.device == torch.zeros_like(x, device=x.device).device
        assert x.to(0).is_cuda and torch.ones(2).to("cuda:0").is_cuda
        with torch.cuda.amp.autocast(dtype=torch.bfloat16):
            assert model(x).dtype is torch.bfloat16
        with torch.device("cuda"):
            assert torch.ones(2).is_cuda
        assert (torch.cuda.device_count(), torch.cuda.current_device()) == (1, 0)
        torch.cuda.synchronize()
        torch.cuda.manual_seed_all(3)
        assert "cuda:0" in repr(x)
        with pytest.raises(RuntimeError, match="only one remote device"):
            torch.ones(2, device="cuda:1")


def test_training_with_cuda_in_its_mouth():
    with bind(InProcessStream(), alias="cuda"):
        model = torch.nn.Linear(2, 1).cuda()
        optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=0.1), torch.amp.GradScaler()
        for _ in range(2):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(torch.ones(4, 2, device="cuda")).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        assert model.weight.grad.is_cuda


def test_everything_is_as_before_afterwards():
    before = (torch.zeros, torch.Tensor.to, torch.cuda.is_available, torch.load, torch.Generator, torch.compile)
    with bind(InProcessStream(), alias="cuda"):
        pass
    assert before == (
        torch.zeros, torch.Tensor.to, torch.cuda.is_available, torch.load, torch.Generator, torch.compile
    )  # fmt: skip
    assert not torch.cuda.is_available()


def test_other_aliases_are_refused():
    with pytest.raises(UsageError, match="only 'cuda'"), bind(InProcessStream(), alias="tpu"):
        pass
    with bind(InProcessStream()):
        pass  # nothing was left attached


def test_the_kinds_of_torch_cuda_stay_kinds():
    with bind(InProcessStream(), alias="cuda"):
        assert isinstance(torch.cuda.device, type)
        with torch.cuda.device(0), torch.cuda.device_of(torch.ones(1).cuda()):
            assert torch.ones(1).cuda().is_cuda
        torch.cuda.reset_max_memory_allocated()


def test_the_device_has_the_name_that_the_program_uses():
    with bind(InProcessStream(), alias="cuda") as device:
        assert device == torch.device("cuda:0") == torch.ones(1, device=device).device
        model = torch.nn.Linear(2, 2).to(device)
        assert model.weight.device == device and model.weight.data.to(device=device).device == device
        with pytest.raises(TypeError, match="cuda:0 device type tensor to numpy"):
            model.weight.detach().numpy()
        with pytest.raises(RuntimeError, match="cuda:0 and cpu"):
            model(torch.ones(2, 2))
    with bind(InProcessStream()) as device:
        assert device == torch.device("dgsf:0") == torch.ones(1, device=device).device


@pytest.mark.parametrize(
    "use",
    [
        lambda: torch.cuda.set_device(1),
        lambda: torch.cuda.device("cuda:1"),
        lambda: torch.cuda.get_device_properties(torch.device("cuda", 2)),
        lambda: torch.cuda.memory_allocated(device=3),
    ],
)
def test_there_is_only_one_device(use):
    with bind(InProcessStream(), alias="cuda"), pytest.raises(RuntimeError, match="only one remote device, cuda:0"):
        use()


def test_common_words_of_torch_cuda_are_answered():
    with bind(InProcessStream(), alias="cuda"):
        torch.cuda.set_device(0), torch.cuda.set_device("cuda"), torch.cuda.synchronize(torch.device("cuda:0"))
        with torch.cuda.nvtx.range("step"):
            torch.cuda.nvtx.mark("here")
        torch.cuda.set_sync_debug_mode(torch.cuda.get_sync_debug_mode())
        torch.accelerator.synchronize()
        x = torch.ones(2, device="cuda")
        x.record_stream(torch.cuda.current_stream())
        assert x.type() == "torch.cuda.FloatTensor" and x.type(torch.float64).dtype is torch.float64
        for graph in (torch.cuda.CUDAGraph, lambda: torch.cuda.graph(None), torch.cuda.make_graphed_callables):
            with pytest.raises(NotImplementedError, match="CUDA graphs"):
                graph()


def test_data_parallel_over_the_one_device_is_the_module_itself():
    with bind(InProcessStream(), alias="cuda") as device:
        model = torch.nn.DataParallel(torch.nn.Linear(2, 2)).to(device)
        out = model(torch.ones(3, 2))
        assert out.device == device and out.shape == (3, 2)
        out.sum().backward()
        assert model.module.weight.grad.is_cuda


def test_cuda_without_an_alias_hints_at_it():
    with bind(InProcessStream()), pytest.raises((AssertionError, RuntimeError), match="alias='cuda'"):
        torch.ones(1, device="cuda")
    with pytest.raises((AssertionError, RuntimeError)) as caught:
        torch.ones(1, device="cuda")
    assert "alias" not in str(caught.value)


def test_memory_is_told_under_the_devices_own_name_too():
    with bind(InProcessStream()) as device:
        held, module = torch.ones(8, device=device), torch.get_device_module(device)
        assert module.memory_allocated() == module.max_memory_allocated() == held.nbytes
        assert module.mem_get_info() == ((1 << 30) - held.nbytes, 1 << 30)


@pytest.mark.parametrize("alias", ["", "cuda"])
def test_the_accelerator_is_the_remote_device(alias):
    name = alias or "dgsf"
    with bind(InProcessStream(), alias=alias) as device:
        accelerator = torch.accelerator
        assert accelerator.is_available() and accelerator.device_count() == 1
        assert accelerator.current_accelerator() == torch.device(name)
        held = torch.ones(8, device=accelerator.current_accelerator(check_available=True))
        assert held.device == device
        assert accelerator.memory_allocated() == accelerator.max_memory_reserved(0) == held.nbytes
        assert accelerator.memory.memory_allocated(device) == held.nbytes
        assert accelerator.memory_stats()["allocated_bytes.all.current"] == held.nbytes
        accelerator.empty_cache(), accelerator.reset_peak_memory_stats(), accelerator.synchronize(device)
        assert torch.get_default_device() == torch.device("cpu")
        with torch.device(name):
            assert torch.get_default_device() == device
    assert not torch.accelerator.is_available()


def test_forward_derivatives_and_scripts_know_the_functions_that_an_alias_replaces():
    """TorchScript has torch's functions by identity, and scripts what forward derivatives need when they come first."""
    with bind(InProcessStream(), alias="cuda"):
        x, v = torch.randn(3, device="cuda"), torch.ones(3, device="cuda")
        _, tangent = torch.func.jvp(lambda x: x.sin() * 2, (x,), (v,))
        torch.testing.assert_close(tangent.cpu(), x.cpu().cos() * 2)
        scripted = torch.jit.script(_two_more)
        torch.testing.assert_close(scripted(torch.ones(2)), torch.full((2,), 3.0))


def _two_more(x: torch.Tensor) -> torch.Tensor:
    return x + torch.full_like(x, 2.0) + torch.zeros(2)
