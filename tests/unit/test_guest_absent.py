"""What of `torch.cuda` a remote device does not have is refused in words, and the rest is answered."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import pytest
import torch
from inprocess_stream import InProcessStream

from dgsf.remoting.guest.absent import TABLE
from dgsf.remoting.guest.attach import bind

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "FutureWarning", "UserWarning")
]


@pytest.fixture
def cuda():
    with bind(InProcessStream(), alias="cuda") as device:
        yield device


def public():
    """All functions of torch.cuda and its modules that say they are public, with their names."""
    names = [each.name for each in pkgutil.iter_modules(torch.cuda.__path__) if not each.name.startswith("_")]
    for place in ("torch.cuda", *(f"torch.cuda.{name}" for name in names)):
        module = import_module(place)
        for name in getattr(module, "__all__", ()):
            if callable(getattr(module, name)) and not isinstance(getattr(module, name), type):
                yield f"{place}.{name}", getattr(module, name)


def fate(function, *args):
    try:
        function(*args)
    except Exception as error:
        return error
    return None


def test_no_public_word_ends_where_torch_has_no_cuda(cuda):
    arguments = ((), (1,), ([torch.ones(2, device="cuda")],), (torch.ones(2, device="cuda"), [0]), (1, 2), (1, 2, 3))
    ends = [(name, fate(function, *args)) for name, function in public() for args in arguments]
    assert len(ends) > 500
    raw = ("torch._C", "NoneType", "dummy base class", "not linked", "not compiled")
    assert [(name, error) for name, error in ends if any(words in str(error) for words in raw)] == []


@pytest.mark.parametrize("name", sorted({f"{place}.{name}" for place, _, names in TABLE for name in names}))
def test_what_is_not_there_is_refused_by_its_name(name, cuda):
    place, _, function = name.rpartition(".")
    with pytest.raises(NotImplementedError, match=f"{name} is not available on a remote device: "):
        getattr(import_module(place), function)(1)


def test_names_that_have_an_answer_give_it_in_every_module(cuda):
    held = torch.ones(8, device="cuda")
    assert not torch.cuda.tunable.is_enabled() and not torch.cuda.tunable.tuning_is_enabled()
    assert torch.cuda.memory.memory_snapshot() == torch.cuda.memory_snapshot() == []
    assert not torch.cuda.graphs.is_current_stream_capturing()
    assert torch.cuda.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["current"] == held.nbytes
    assert torch.cuda.get_stream_from_external(0) == torch.cuda.current_stream()
    torch.cuda.memory.empty_cache()
    with torch.cuda.profiler.profile():
        assert held.sum().item() == 8


@pytest.mark.parametrize(
    ("place", "name", "words"),
    [("graphs", "CUDAGraph", "CUDA graphs"), ("memory", "MemPool", r"torch\.cuda\.MemPool")],
)
def test_kinds_that_are_not_there_stay_kinds(place, name, words, cuda):
    kind = getattr(torch.cuda, name)
    assert isinstance(kind, type) and getattr(import_module(f"torch.cuda.{place}"), name) is kind
    with pytest.raises(NotImplementedError, match=words):
        kind()


def test_all_is_torchs_again_afterwards():
    places = sorted({place for place, _, _ in TABLE} | {"torch.cuda.graphs", "torch.cuda.profiler"})
    before = [dict(vars(import_module(place))) for place in places]
    with bind(InProcessStream(), alias="cuda"):
        pass
    assert [dict(vars(import_module(place))) for place in places] == before
