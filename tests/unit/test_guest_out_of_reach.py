"""What is out of reach: values of an ended session, indices on the CPU, and questions that have no answer here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dgsf.errors import DgsfError, NotAttached, SessionLost
from dgsf.remoting.guest.attach import bind
from tests.support.inprocess_stream import InProcessStream


def test_a_tensor_of_an_ended_session_prints_by_what_is_known_of_it() -> None:
    with bind(InProcessStream()) as device:
        x = torch.arange(6.0, device=device).reshape(2, 3)
        scalar, pending = torch.tensor(2, device=device), torch.empty(4, dtype=torch.float16, device=device)
        layer = torch.nn.Linear(2, 3).to(device)
        grown = (x * 1.0).requires_grad_().exp()
    assert (
        repr(x)
        == str(x)
        == f"{x}"
        == "tensor(<its session has ended>, device='dgsf:0', size=(2, 3), dtype=torch.float32)"
    )
    assert "size=(), dtype=torch.int64" in repr(scalar)
    assert "size=(4,), dtype=torch.float16" in repr(pending)
    assert "grad_fn=<ExpBackward0>" in repr(grown)
    assert repr(layer.weight).startswith("Parameter containing:\ntensor(<its session has ended>")
    assert "requires_grad=True" in repr(layer.weight)
    assert str(layer.state_dict()).count("its session has ended") == 2
    for ask in (x.tolist, x.cpu, scalar.item, lambda: f"{scalar:.2f}", lambda: bool(scalar)):
        with pytest.raises(NotAttached):
            ask()


def test_one_of_another_session_prints_while_the_next_one_is_attached() -> None:
    with bind(InProcessStream()) as device:
        x = torch.ones(3, device=device)
    with bind(InProcessStream()) as device:
        assert "its session has ended" in repr(x)
        assert repr(torch.ones(1, device=device)) == "tensor([1.], device='dgsf:0')"
        with pytest.raises(DgsfError, match="has ended"):
            x.cpu()


def test_a_lost_session_does_not_break_a_debugger(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = InProcessStream()
    with bind(stream) as device:
        x = torch.ones(3, device=device)

        def lost(handle: int) -> torch.Tensor:
            raise SessionLost("gone")

        monkeypatch.setattr(stream, "fetch", lost)
        assert "its session has ended" in repr(x)
        with pytest.raises(SessionLost):
            x.tolist()


# --- indices on the CPU -----------------------------------------------------------------------
REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "index_select": lambda x, index: x.index_select(0, index),
    "index_add": lambda x, index: x.index_add(0, index, x),
    "index_copy": lambda x, index: x.index_copy(0, index, x),
    "index_fill": lambda x, index: x.index_fill(0, index, 1.0),
    "index_reduce": lambda x, index: x.index_reduce(0, index, x, "prod"),
    "gather": lambda x, index: x.gather(0, index[None]),
    "scatter": lambda x, index: x.scatter(0, index[None], 1.0),
    "take": lambda x, index: x.take(index),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_index_on_the_cpu_is_refused_as_on_cuda(name: str) -> None:
    with bind(InProcessStream(), alias="cuda"):
        x, index = torch.ones(2, 3, device="cuda"), torch.tensor([0, 1])
        with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.* cuda:0 and cpu"):
            REFUSED[name](x, index)
        REFUSED[name](x, index.cuda())


def test_brackets_take_an_index_on_the_cpu_as_on_cuda() -> None:
    with bind(InProcessStream()) as device:
        x = torch.arange(6.0, device=device).reshape(2, 3)
        assert x[torch.tensor([1])].tolist() == [[3.0, 4.0, 5.0]]
        x[torch.tensor([0])] = 7.0
        assert x[0].tolist() == [7.0, 7.0, 7.0]


# --- questions under the alias ----------------------------------------------------------------
@pytest.mark.parametrize("name", ["utilization", "temperature", "power_draw", "clock_rate", "memory_usage"])
def test_what_only_the_driver_knows_says_so_with_torchs_own_type(name: str) -> None:
    with bind(InProcessStream(), alias="cuda"), pytest.raises(ModuleNotFoundError, match=f"{name} asks NVML"):
        getattr(torch.cuda, name)()


def test_what_belongs_to_a_process_with_the_gpu_is_refused_or_empty() -> None:
    with bind(InProcessStream(), alias="cuda"):
        for use in (torch.cuda.current_blas_handle, lambda: torch.cuda.caching_allocator_alloc(64)):
            with pytest.raises(NotImplementedError, match="not available on a remote device"):
                use()
        assert torch.cuda.host_memory_stats() == {}


@pytest.mark.parametrize(("alias", "name"), [("cuda", "cuda:0"), ("", "dgsf:0")])
def test_a_generator_says_the_device_that_it_was_made_for(alias: str, name: str) -> None:
    with bind(InProcessStream(), alias=alias):
        generator = torch.Generator(device=name).manual_seed(3)
        assert str(generator.device) == name
        assert isinstance(generator, torch.Generator)
        drawn = torch.rand(4, generator=generator, device=name)
        assert torch.equal(drawn.cpu(), torch.rand(4, generator=torch.Generator().manual_seed(3)))
        x = torch.zeros(4, device=name).uniform_(generator=generator.manual_seed(3))
        assert torch.equal(x.cpu(), drawn.cpu())
        assert torch.Generator().device.type == "cpu"
