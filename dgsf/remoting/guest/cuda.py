"""The functions of `torch.cuda` that programs ask before they use a device, answered for the remote one."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch

from dgsf.remoting.guest import absent, one_device
from dgsf.remoting.guest.backend import MODULE
from dgsf.remoting.guest.generators import GENERATOR
from dgsf.remoting.guest.replacing import replace
from dgsf.remoting.guest.streams import Event, Stream, StreamContext, of_any_device, synchronize
from dgsf.remoting.guest.tensor import RemoteTensor

_ALIAS = "cuda"
Device: Any = one_device.device_class(_ALIAS)


class DeviceOf(Device):
    """`with torch.cuda.device_of(tensor):`"""

    def __init__(self, tensor: Any) -> None:
        super().__init__()


class Graph:
    """Recording and replaying by hand has no meaning here."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(
            "CUDA graphs are not available on a remote device; run the code without one: its calls are batched already"
        )


class Pool:
    """A part of the device's memory to allocate from."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("torch.cuda.MemPool is not available on a remote device: its memory is elsewhere")


def _zero(*_: Any, **__: Any) -> int:
    return 0


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _unread(name: str) -> Any:
    """What torch reads of the driver's library; it says the same where that is not installed."""

    def ask(*_: Any, **__: Any) -> Any:
        raise ModuleNotFoundError(
            f"torch.cuda.{name} asks NVML (nvidia-ml-py), which knows the GPUs of this machine only: "
            "the remote device cannot be asked for its temperature, power or load"
        )

    return ask


_NVML = ("utilization", "temperature", "power_draw", "clock_rate", "memory_usage", "device_memory_used")
_PINNED: dict[str, Any] = {  # memory of this process, of which CUDA has none here
    "host_memory_stats": dict,
    "host_memory_stats_as_nested_dict": dict,
    "reset_peak_host_memory_stats": _nothing,
    "reset_accumulated_host_memory_stats": _nothing,
}

ANSWERS: dict[str, Any] = {
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "init": _nothing,
    "_lazy_init": _nothing,
    "device_count": lambda: 1,
    "current_device": _zero,
    "synchronize": one_device.of_device(synchronize, _ALIAS),
    "empty_cache": _nothing,
    "ipc_collect": _nothing,
    "manual_seed": MODULE.manual_seed,
    "manual_seed_all": MODULE.manual_seed_all,
    "seed": MODULE.seed,
    "seed_all": MODULE.seed_all,
    "initial_seed": MODULE.initial_seed,
    "get_rng_state": lambda device=None: MODULE.get_rng_state(),
    "set_rng_state": lambda state, device=None: MODULE.set_rng_state(state),
    "get_rng_state_all": MODULE.get_rng_state_all,
    "set_rng_state_all": MODULE.set_rng_state_all,
    "is_bf16_supported": lambda *_, **__: True,
    "is_current_stream_capturing": lambda: False,
    "device_of": DeviceOf,
    "set_per_process_memory_fraction": _nothing,
    "can_device_access_peer": lambda *_, **__: False,
    "stream": StreamContext,
    "StreamContext": StreamContext,
    "ExternalStream": Stream,
    "get_stream_from_external": lambda *_, **__: Stream(),
    "set_stream": _nothing,
    "current_stream": lambda device=None: Stream(),
    "default_stream": lambda device=None: Stream(),
    "Event": Event,
    "Stream": Stream,
    "set_sync_debug_mode": _nothing,
    "get_sync_debug_mode": _zero,
    "memory_snapshot": lambda *_, **__: [],
    "get_allocator_backend": lambda: "native",
    "get_per_process_memory_fraction": lambda device=None: 1.0,
    "CUDAGraph": Graph,
    "graph": Graph,
    "make_graphed_callables": Graph,
    "graph_pool_handle": Graph,
    "MemPool": Pool,
    **one_device.answers(_ALIAS),
    "device": Device,
    **{name: _unread(name) for name in _NVML},
    **{name: answer for name, answer in _PINNED.items() if hasattr(torch.cuda, name)},
}
_MARKS = (  # for a profiler that is not here
    (torch.cuda.nvtx, "range_push", "range_pop", "range_start", "range_end", "mark", "_device_range_start",
     "_device_range_end"),
    (torch.cuda.profiler, "start", "stop"),
)  # fmt: skip
_MODULES = (torch.cuda.memory, torch.cuda.random, torch.cuda.streams, torch.cuda.graphs)
_TUNING = ("is_enabled", "tuning_is_enabled", "record_untuned_is_enabled")


def install(stack: ExitStack) -> None:
    for name, answer in ANSWERS.items():
        _answer(stack, name, answer if isinstance(answer, type) else _own(answer))
    replace(stack, torch.cuda, "default_generators", (GENERATOR,))
    for name, ours in (("Stream", Stream), ("Event", Event)):
        replace(stack, torch, name, of_any_device(getattr(torch, name), ours, name))
    replace(stack, torch.cuda, "_initialized", True)  # gradient checkpointing reads it, see `backend`
    for module, *names in _MARKS:
        for name in names:
            replace(stack, module, name, _own(_zero))
    for name in _TUNING:
        replace(stack, torch.cuda.tunable, name, lambda: False)
    absent.install(stack)
    cudnn = torch.backends.cudnn
    replace(stack, cudnn, "is_acceptable", _here_only(cudnn.is_acceptable))
    profiler = torch.autograd.profiler.profile
    replace(stack, profiler, "__init__", _without_kernels(profiler.__init__))


def _answer(stack: ExitStack, name: str, answer: Any) -> None:
    """Under the name in torch.cuda, and in that module of it which the function comes from."""
    before = getattr(torch.cuda, name, None)
    replace(stack, torch.cuda, name, answer)
    for module in _MODULES:
        if before is not None and module.__dict__.get(name) is before:
            replace(stack, module, name, answer)


def _here_only(original: Any) -> Any:
    """Whether cuDNN of this process takes a tensor: recurrent layers would join their weights in its memory."""
    return lambda tensor: not isinstance(tensor, RemoteTensor) and original(tensor)


def _without_kernels(original: Any) -> Any:
    """A profile that asks for CUDA's kernels: there are none here, so it has what this process does."""

    def __init__(self: Any, *args: Any, use_cuda: bool = False, use_device: Any = None, **kwargs: Any) -> None:
        if use_cuda or use_device == "cuda":
            use_device, kwargs["use_cpu"] = None, True
        original(self, *args, use_device=use_device, **kwargs)

    return __init__


def _own(answer: Any) -> Any:
    """A function of its own for each name: torch keeps tables of its functions by identity."""
    return lambda *args, **kwargs: answer(*args, **kwargs)
